"""The one shape of a table: rows by columns, each cell one number or two, nothing formatted.

Every table of a report is a `Grid`: the paper's tables of pairs and classes, the numbers of a chain, ablations,
selection rules. A writer that can show one can show all. Values are fractions, never percent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cosda.records.run import Run
from cosda.report.tables import Cell

Kind = Literal["pairs", "chains", "classes", "ablations", "rules", "summary", "final", "adapted", "matrix"]
UNSURE = 0.05  # a difference with a larger p may be chance
FEWEST = 6  # pairs of values for a test: with five, no difference could have a p below that


@dataclass(frozen=True)
class Measure:
    """What a number is."""

    name: str  # for programs
    title: str
    higher_is_better: bool | None = True  # None: there is no better
    percent: bool = True  # False: shown as it is, such as a correlation
    signed: bool = False  # a difference, shown with its sign
    decimals: int = 2


ACCURACY = Measure("accuracy", "accuracy")
DROP = Measure("drop", "drop", higher_is_better=False)


@dataclass(frozen=True)
class Heading:
    """A column: its name, and the numbers in each of its cells."""

    title: str
    measures: tuple[Measure, ...]
    block: str = ""  # columns of one block stand together; in tables of pairs, the target
    domains: tuple[str, ...] = ()  # source and target, where each column has its own
    average: bool = False  # whether it sums up the columns of its block, or of the table


@dataclass(frozen=True)
class Entry:
    """A number: ours, the paper's, and how it stands in its column."""

    cell: Cell
    runs: tuple[Run, ...] = ()  # behind the values
    published: float | None = None
    best: bool = False
    unsure: bool = False  # its difference from the best, or from the whole method, may be chance

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        if self.cell.mean is None or self.published is None:
            return None
        return self.cell.mean - self.published


@dataclass(frozen=True)
class Line:
    """A row: one method, one stage of it, or one selection rule."""

    name: str
    seeds: str  # how many stand behind it: "3", "2 of 3", "2–3"; "" where seeds are not what is counted
    entries: tuple[tuple[Entry, ...], ...]  # [column][measure of the column]
    part: str = ""  # which part of the row's subject: a stage
    problems: tuple[str, ...] = ()  # runs that gave no numbers, and why


@dataclass(frozen=True)
class Comparison:
    """A row against a reference, the best one or the whole method, by Wilcoxon's signed-rank test."""

    column: str
    measure: str
    row: str
    reference: str
    paired_by: str  # what two values have in common, such as seed and pair
    values: int  # pairs of values behind it
    p: float | None  # after Holm's correction over the rows; None where the values are too few

    @property
    def unsure(self) -> bool:
        """Whether the difference may be chance."""
        return self.p is not None and self.p >= UNSURE


@dataclass(frozen=True)
class Grid:
    """A table."""

    kind: Kind
    title: str
    benchmark: str
    domains: tuple[str, ...]  # of the chain; empty where a table spans several
    protocol: str
    headline: str
    select: str
    fingerprint: str  # of the data; empty where a table spans several
    columns: tuple[Heading, ...]
    rows: tuple[Line, ...]
    comparisons: tuple[Comparison, ...] = ()
    notes: tuple[str, ...] = ()  # sentences below the table, as plain text

    @property
    def has_published(self) -> bool:
        """Whether the paper has a number for any cell."""
        return any(entry.published is not None for row in self.rows for cell in row.entries for entry in cell)


def with_best(grid: Grid, outside: Collection[tuple[str, str]] = ()) -> Grid:
    """Mark the best mean of every measure in every column, at the precision shown, where there is a contest.

    ``outside`` are rows, each with a measure, that take no part: what nothing was done to cannot forget.
    """
    marked = [list(map(list, row.entries)) for row in grid.rows]
    for i, column in enumerate(grid.columns):
        for j, measure in enumerate(column.measures):
            means = [None if (row.name, measure.name) in outside else row.entries[i][j].cell.mean for row in grid.rows]
            winners = _winners(means, measure)
            for k in winners:
                marked[k][i][j] = replace(marked[k][i][j], best=True)
    rows = (replace(row, entries=tuple(map(tuple, cells))) for row, cells in zip(grid.rows, marked, strict=True))
    return replace(grid, rows=tuple(rows))


def _winners(means: Sequence[float | None], measure: Measure) -> list[int]:
    shown = {i: round(mean, 4) for i, mean in enumerate(means) if mean is not None}
    if measure.higher_is_better is None or len(set(shown.values())) < 2:
        return []
    best = max(shown.values()) if measure.higher_is_better else min(shown.values())
    return [i for i, mean in shown.items() if mean == best]
