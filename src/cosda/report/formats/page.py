"""The page: tables that need no JavaScript, figures that need no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from cosda.report.figures import FIGURES
from cosda.report.figures.base import Figure
from cosda.report.figures.style import Palette, Plot, palette
from cosda.report.figures.trade_off import trade_off_over_pairs
from cosda.report.formats.adaptation_pages import adaptation_pages
from cosda.report.formats.run_pages import run_pages
from cosda.report.formats.templates import environment
from cosda.report.model import numbers, wording
from cosda.report.model.groups import Section
from cosda.report.model.table import Row, Table
from cosda.report.tables.contents import Contents


class Plots:
    """The plots of a page as JSON, each once, however often it is shown."""

    def __init__(self) -> None:
        self._places: dict[Markup, int] = {}

    def place(self, plot: Plot) -> int:
        """The number of a plot in `json`."""
        return self._places.setdefault(script_json(plot), len(self._places))

    def json(self) -> Markup:
        """All plots placed so far, as a list."""
        return Markup("[" + ",\n".join(self._places) + "]")


def page(contents: Contents) -> str:
    """The report as one HTML page; equal run folders give equal bytes."""
    from plotly.offline import get_plotlyjs

    colours = palette(contents.sections)
    plots = Plots()
    templates = environment()
    templates.globals.update(
        wording=wording,
        numbers=numbers,
        colours=colours,
        place=plots.place,
        chain=chain,
        searched=searched,
        seeds_behind=seeds_behind,
    )
    return templates.get_template("page.html.jinja").render(
        contents=contents,
        benchmarks=_benchmarks(contents),
        choices=_choices(contents.sections),
        across=[(table, trade_off_over_pairs(table, colours)) for table in contents.across],
        chapters=[
            (chapter, section_figures(chapter.section, colours), pages)
            for chapter, pages in zip(contents.chapters, run_pages(contents.sections), strict=True)
        ],
        pages_of_adaptations=adaptation_pages(contents.judged),
        meanings=wording.meanings(bool(contents.judged), bool(contents.chapters)),
        plots=plots,
        plotly=Markup(get_plotlyjs()),
    )


def section_figures(section: Section, colours: Palette) -> list[Figure]:
    """All figures of a section; kinds with nothing to draw are left out."""
    found = [kind.make(section, colours) for kind in FIGURES.values()]
    return [figure for figure in found if figure and (figure.panels or figure.notes)]


def chain(domains: Sequence[str]) -> str:
    """A chain in one line."""
    return " → ".join(domains)


def searched(table: Table) -> str:
    """What stands for the chain of a table that spans several, when a reader searches."""
    return chain(table.domains) or " ".join([*dict.fromkeys(c.title for c in table.columns), *table.notes[:1]])


def seeds_behind(row: Row) -> str:
    """The seeds of the runs behind a row, for the filter."""
    return " ".join(map(str, sorted({run.seed for cell in row.cells for run in cell.runs})))


def script_json(value: Any) -> Markup:
    """JSON that cannot end the <script> it stands in: no <, > or &, and no character outside ASCII."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _benchmarks(contents: Contents) -> list[str]:
    """What the report is about: benchmarks, and domains that a model was adapted to."""
    found = [one.adaptation.domain for one in contents.judged]
    return list(dict.fromkeys([*found, *(section.benchmark for section in contents.sections)]))


def _choices(sections: Sequence[Section]) -> dict[str, list[str]]:
    """What a reader can filter by, with the values there are."""
    groups = [group for section in sections for group in section.groups]
    found = {
        "benchmark": [section.benchmark for section in sections],
        "chain": [chain(section.domains) for section in sections],
        "method": [group.name for group in groups],
        "seed": [str(seed) for seed in sorted({run.seed for group in groups for run in group.runs})],
    }
    return {name: list(dict.fromkeys(values)) for name, values in found.items()}
