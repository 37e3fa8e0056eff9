"""One self-contained page: tables that need no JavaScript, figures that need no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cosda.records.run import Run
from cosda.report import wording
from cosda.report.columns import SUMMARY
from cosda.report.contents import Contents, contents
from cosda.report.gallery import album_of_pairs, albums
from cosda.report.grids import Grid, Line
from cosda.report.plots import Figure, palette
from cosda.report.runpages import run_pages


class Figures:
    """The figures of a page as JSON, each once, however often it is shown."""

    def __init__(self) -> None:
        self._places: dict[Markup, int] = {}

    def place(self, figure: Figure) -> int:
        """The number of a figure in `json`."""
        return self._places.setdefault(script_json(figure), len(self._places))

    def json(self) -> Markup:
        """All figures placed so far, as a list."""
        return Markup("[" + ",\n".join(self._places) + "]")


def render(runs: Sequence[Run], select: str | None = None) -> str:
    """The report as one HTML page; equal run folders give equal bytes.

    ``select`` shows the runs under another selection rule, as far as their records allow.
    """
    from plotly.offline import get_plotlyjs

    book = contents(runs, select)
    colours = palette(book.tables.sections)
    figures = Figures()
    environment = _environment()
    environment.globals.update(
        wording=wording, place=figures.place, colours=colours, chain=chain, searched=searched, seeds_behind=seeds_behind
    )
    return environment.get_template("page.html.jinja").render(
        book=book,
        benchmarks=list(dict.fromkeys(section.benchmark for section in book.tables.sections)),
        choices=_choices(book),
        across=[(grid, album_of_pairs(grid, colours)) for grid in book.across],
        chapters=[
            (chapter, albums(chapter.section, colours), pages)
            for chapter, pages in zip(book.chapters, run_pages(book.tables.sections), strict=True)
        ],
        runs=runs,
        measures=SUMMARY,
        figures=figures,
        plotly=Markup(get_plotlyjs()),
    )


def chain(domains: Sequence[str]) -> str:
    """A chain in one line."""
    return " → ".join(domains)


def searched(grid: Grid) -> str:
    """What stands for the chain of a table that spans several, when a reader searches."""
    return chain(grid.domains) or " ".join([*(column.title for column in grid.columns), *grid.notes[:1]])


def seeds_behind(line: Line) -> str:
    """The seeds of the runs behind a row, for the filter."""
    runs = [run for cell in line.entries for entry in cell for run in entry.runs]
    return " ".join(map(str, sorted({run.seed for run in runs})))


def script_json(value: Any) -> Markup:
    """JSON that cannot end the <script> it stands in: no <, > or &, and no character outside ASCII."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _choices(book: Contents) -> dict[str, list[str]]:
    """What a reader can filter by, with the values there are."""
    sections = book.tables.sections
    runs = [run for section in sections for row in section.rows for run in row.runs]
    found = {
        "benchmark": [section.benchmark for section in sections],
        "chain": [chain(section.domains) for section in sections],
        "method": [row.name for section in sections for row in section.rows],
        "seed": [str(seed) for seed in sorted({run.seed for run in runs})],
    }
    return {name: list(dict.fromkeys(values)) for name, values in found.items()}


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("cosda", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
