"""Chains of several targets over all orders that were run: what a method is worth whatever comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cosda import metrics
from cosda.report import wording
from cosda.report.chapters import empty_grid
from cosda.report.columns import SUMMARY
from cosda.report.grids import Entry, Grid, Heading, Line, Measure, with_best
from cosda.report.pairs import line_over, rows_by_name
from cosda.report.significance import with_comparisons
from cosda.report.tables import Cell, Row, Section

Values = Mapping[tuple[int, int], float]  # of one column, by section and seed


def chain_grids(sections: Sequence[Section]) -> list[Grid]:
    """A table for each benchmark that has at least two chains of the same number of domains, three or more."""
    places: dict[tuple[object, ...], list[Section]] = {}
    for section in sections:
        if len(section.domains) > 2:
            place = (section.benchmark, section.protocol, section.headline, section.select, len(section.domains))
            places.setdefault(place, []).append(section)
    return [_grid(found) for found in places.values() if len(found) > 1]


def _grid(sections: list[Section]) -> Grid:
    rows = rows_by_name(sections)
    headings = tuple(Heading(c.title, (Measure(c.measure, c.title, c.higher_is_better),)) for c in SUMMARY)
    values = {name: [_values(found, i) for i in range(len(SUMMARY))] for name, found in rows.items()}
    lines = tuple(_line(name, found, values[name], sections) for name, found in rows.items())
    first = sections[0]
    grid = replace(
        empty_grid(first, "chains", headings, lines),
        title=f"{first.benchmark}: all chains",
        domains=(),
        fingerprint="",
        notes=(wording.chains([section.domains for section in sections]),),
    )
    return with_comparisons(with_best(grid), 0, {name: [of[0]] for name, of in values.items()}, "seed and chain")


def _values(rows: Sequence[Row | None], column: int) -> dict[tuple[int, int], float]:
    found = {}
    for place, row in enumerate(rows):
        for run, matrix in zip(row.counted, row.matrices, strict=True) if row else ():
            value = SUMMARY[column].compute(matrix)
            assert value is not None, "chains of several targets have all numbers of a summary"
            found[place, run.seed] = value
    return found


def _line(name: str, rows: Sequence[Row | None], values: Sequence[Values], sections: Sequence[Section]) -> Line:
    """The mean over the chains for each seed that has them all."""
    everywhere = range(len(sections))
    known = {seed for _, seed in values[0]}
    whole = sorted(seed for seed in known if all((place, seed) in values[0] for place in everywhere))
    runs = tuple(run for row in rows if row for run in row.counted if run.seed in whole)
    reason = "" if whole else "no seed has all the chains"
    cells = [Cell(tuple(metrics.mean([of[place, s] for place in everywhere]) for s in whole), reason) for of in values]
    return line_over(name, rows, sections, len(whole), [(Entry(cell, runs),) for cell in cells])
