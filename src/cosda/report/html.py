"""One self-contained page: tables that need no JavaScript, figures that need no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cosda.records import Run
from cosda.report import wording
from cosda.report.columns import SUMMARY
from cosda.report.gallery import Album, albums
from cosda.report.plots import colour
from cosda.report.settings import flatten, show
from cosda.report.tables import Section, build


@dataclass(frozen=True)
class Surroundings:
    """A machine and its versions, with the runs that were made there."""

    facts: tuple[tuple[str, str], ...]
    runs: tuple[str, ...]


def render(runs: Sequence[Run]) -> str:
    """The report as one HTML page; equal run folders give equal bytes."""
    from plotly.offline import get_plotlyjs

    tables = build(runs)
    chapters: list[tuple[Section, list[Album]]] = [(section, albums(section)) for section in tables.sections]
    figures = {
        figure_id(s, a, p): picture.figure
        for s, (_, found) in enumerate(chapters, start=1)
        for a, album in enumerate(found, start=1)
        for p, picture in enumerate(album.pictures, start=1)
        if picture.figure is not None
    }
    return _environment().get_template("page.html.jinja").render(
        benchmarks=list(dict.fromkeys(section.benchmark for section in tables.sections)),
        chapters=chapters,
        left_out=tables.left_out,
        runs=runs,
        measures=SUMMARY,
        surroundings=_surroundings(runs),
        figures=script_json(figures),
        plotly=Markup(get_plotlyjs()),
    )  # fmt: skip


def figure_id(section: int, album: int, picture: int) -> str:
    """The id of a figure's place: counted, so that no name from data becomes part of an id."""
    return f"figure-{section}-{album}-{picture}"


def script_json(value: Any) -> Markup:
    """JSON that cannot end the <script> it stands in: no <, > or &, and no character outside ASCII."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def settings_of(run: Run) -> list[tuple[str, str, str]]:
    """Every setting of a run: its name, its value and where the value comes from."""
    origins = run.config.get("origins") or {}
    return [(key, show(value), str(origins.get(key, ""))) for key, value in flatten(run.config["settings"]).items()]


def _surroundings(runs: Sequence[Run]) -> list[Surroundings]:
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for run in sorted(runs, key=lambda run: run.path.name):
        facts = tuple((key, show(value)) for key, value in flatten(run.environment).items())
        found.setdefault(facts, []).append(run.path.name)
    return [Surroundings(facts, tuple(names)) for facts, names in found.items()]


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cosda", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(wording=wording, figure_id=figure_id, settings_of=settings_of, colour=colour)
    return environment
