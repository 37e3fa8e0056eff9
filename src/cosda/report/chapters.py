"""The tables of one section: the numbers of a chain, beside the paper's, and its accuracy matrices."""

from __future__ import annotations

from collections.abc import Callable

from cosda.report import wording
from cosda.report.columns import Column
from cosda.report.grids import ACCURACY, Entry, Grid, Heading, Kind, Line, Measure, with_best
from cosda.report.published import Published, label_of, published
from cosda.report.significance import with_comparisons
from cosda.report.tables import Cell, Row, Section

KINDS: tuple[Kind, ...] = ("summary", "final", "adapted")  # with a single target the last says nothing new
# What the paper prints of a chain, and of a single target, under the names of our columns.
OF_CHAINS: dict[str, Callable[[Published], float | None]] = {"bwt": lambda numbers: numbers.bwt}
OF_PAIRS: dict[str, Callable[[Published], float | None]] = {
    "adaptation": lambda numbers: numbers.accuracy,
    "adapted": lambda numbers: numbers.accuracy,
    "source_drop": lambda numbers: numbers.drop,
}


def section_grids(section: Section) -> list[Grid]:
    """Summary, accuracies at the end and after each stage; for chains of several targets the matrices."""
    if len(section.domains) == 2:
        return [_grid(section, kind) for kind in KINDS[:2]]
    grids = [_grid(section, kind) for kind in KINDS if wording.group(section, kind)]
    return [*grids, _matrices(section)] if any(row.counted for row in section.rows) else grids


def empty_grid(section: Section, kind: Kind, columns: tuple[Heading, ...], rows: tuple[Line, ...]) -> Grid:
    """A grid that stands in the place of its section."""
    return Grid(
        kind=kind,
        title=wording.TITLES[kind],
        benchmark=section.benchmark,
        domains=section.domains,
        protocol=section.protocol,
        headline=section.headline,
        select=section.select,
        fingerprint=section.fingerprint,
        columns=columns,
        rows=rows,
    )


def _grid(section: Section, kind: Kind) -> Grid:
    places = wording.group(section, kind)
    headings = tuple(Heading(column.title, (_measure(column),)) for _, column in places)
    rows = tuple(_line(section, row, places) for row in section.rows)
    grid = with_best(empty_grid(section, kind, headings, rows))
    if kind != "summary":
        return grid
    compared = with_comparisons(grid, 0, _final(section), "seed and domain")
    return compared if any(c.p is not None for c in compared.comparisons) else grid


def _measure(column: Column) -> Measure:
    return Measure(column.measure, column.title, column.higher_is_better)


def _line(section: Section, row: Row, places: list[tuple[int, Column]]) -> Line:
    numbers = published(section.benchmark, section.domains, label_of(row.runs[0]))
    known = OF_PAIRS if len(section.domains) == 2 else OF_CHAINS
    entries = []
    for i, column in places:
        printed = known[column.measure](numbers) if column.measure in known else None
        entries.append((Entry(row.cells[i], row.counted, printed),))
    return Line(row.name, wording.seeds(row), tuple(entries), problems=tuple(map(wording.problem, row.problems)))


def _final(section: Section) -> dict[str, list[dict[object, float]]]:
    """What stands behind the average: the accuracies of the last model, by seed and domain."""
    return {
        row.name: [
            {
                (run.seed, domain): accuracy
                for run, matrix in zip(row.counted, row.matrices, strict=True)
                for domain, accuracy in enumerate(matrix[-1])
            }
        ]
        for row in section.rows
    }


def _matrices(section: Section) -> Grid:
    headings = tuple(Heading(domain, (ACCURACY,)) for domain in section.domains)
    lines = [line for row in section.rows if row.counted for line in _stages(section, row)]
    return empty_grid(section, "matrix", headings, tuple(lines))


def _stages(section: Section, row: Row) -> list[Line]:
    lines = []
    for stage, domain in enumerate(section.domains):
        cells = [Cell(values) for values in zip(*(matrix[stage] for matrix in row.matrices), strict=True)]
        entries = tuple((Entry(cell, row.counted),) for cell in cells)
        part = f"after {domain}" if stage else "source model"
        lines.append(Line(row.name, wording.seeds(row), entries, part))
    return lines
