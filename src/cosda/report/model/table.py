"""The one shape of a table: rows by columns of numbers, nothing formatted.

Every table of a report is a `Table`: the paper's tables of pairs and classes, the measures of a chain, ablations,
selection rules. A format that can show one can show all. Values are fractions, never percent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from cosda import metrics
from cosda.records.run import Run

LEVEL = 0.05  # of significance: a difference with a larger p may be chance


@dataclass(frozen=True)
class Column:
    """What the numbers of a column are, and how they are shown."""

    title: str
    measure: str  # the name of its numbers, for programs
    larger_is_better: bool | None = True  # None: neither is
    percent: bool = True  # False: shown as it is, such as a correlation
    signed: bool = False  # a difference, shown with its sign
    decimals: int = 2
    block: str = ""  # columns of one block stand together; in tables of pairs, the target
    domains: tuple[str, ...] = ()  # source and target, where each column has its own
    average: bool = False  # whether it sums up the columns of its block, or of the table


def measure_columns() -> tuple[Column, ...]:
    """A column for each of `metrics.MEASURES`."""
    return tuple(Column(one.title, name, one.larger_is_better) for name, one in metrics.MEASURES.items())


@dataclass(frozen=True)
class Cell:
    """A number over the seeds, the paper's number beside it, and how it stands in its column."""

    values: tuple[float, ...] = ()
    reason: str = ""  # why there is no value
    runs: tuple[Run, ...] = ()  # behind the values
    published: float | None = None
    best: bool = False
    may_be_chance: bool = False  # its difference from the best, or from the whole method

    @property
    def mean(self) -> float | None:
        """Mean over the seeds."""
        return metrics.mean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """Sample standard deviation over the seeds; None where a single seed cannot tell."""
        return metrics.spread(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.mean is None or self.published is None else self.mean - self.published


@dataclass(frozen=True)
class Row:
    """One method, one stage of it, or one selection rule."""

    name: str
    cells: tuple[Cell, ...]  # one a column
    seeds: str = ""  # how many stand behind it: "3" or "2 of 3"; "" where seeds are not what is counted
    part: str = ""  # which part of the method's chain: a stage or a domain
    problems: tuple[str, ...] = ()  # runs that gave no numbers, and why


@dataclass(frozen=True)
class PairedTest:
    """A row against a reference, the best row or the whole method, by Wilcoxon's signed-rank test."""

    column: str
    measure: str
    row: str
    reference: str
    paired_by: str  # what two values have in common, such as seed and pair
    values: int  # pairs of values behind it
    p: float | None  # after Holm's correction over the rows; None where the values are too few

    @property
    def may_be_chance(self) -> bool:
        """Whether the difference is not significant."""
        return self.p is not None and self.p >= LEVEL


@dataclass(frozen=True)
class Table:
    """Rows by columns, and what they may be compared under."""

    title: str
    benchmark: str
    domains: tuple[str, ...]  # of the chain; empty where a table spans several
    protocol: str
    headline: str
    select: str
    fingerprint: str  # of the data; empty where a table spans several
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    kind: str = ""  # its name in the registry
    row_title: str = "method"  # what a row is
    part_title: str = "stage"  # what its part is
    stacked: tuple[str, ...] = ()  # measures that every column title has; in text they stand below each other
    folded: bool = False  # whether a page shows its title alone until a reader opens it
    tests: tuple[PairedTest, ...] = ()
    notes: tuple[str, ...] = ()  # sentences below the table, as plain text

    @property
    def caption(self) -> str:
        """The title of a table that stands alone."""
        chain = f" ({' → '.join(self.domains)})" if self.domains else ""
        rule = f" (rule: {self.select})" if self.select else ""
        return f"{self.title}{chain}{rule}"

    @property
    def has_published(self) -> bool:
        """Whether the paper has a number for any cell."""
        return any(cell.published is not None for row in self.rows for cell in row.cells)

    def place(self, title: str, measure: str) -> int:
        """The index of a column."""
        return [(column.title, column.measure) for column in self.columns].index((title, measure))


def with_best(table: Table, outside: Collection[tuple[str, str]] = ()) -> Table:
    """Mark the best mean of every column, at the precision shown, where means differ.

    ``outside`` are rows, each with a measure, that take no part: what nothing was done to cannot forget.
    """
    best: set[tuple[int, int]] = set()
    for j, column in enumerate(table.columns):
        means = [None if (row.name, column.measure) in outside else row.cells[j].mean for row in table.rows]
        best |= {(i, j) for i in _best_rows(means, column)}
    rows = tuple(
        replace(row, cells=tuple(replace(cell, best=(i, j) in best) for j, cell in enumerate(row.cells)))
        for i, row in enumerate(table.rows)
    )
    return replace(table, rows=rows)


def _best_rows(means: Sequence[float | None], column: Column) -> list[int]:
    shown = {i: round(mean, 4) for i, mean in enumerate(means) if mean is not None}
    if column.larger_is_better is None or len(set(shown.values())) < 2:
        return []
    best = max(shown.values()) if column.larger_is_better else min(shown.values())
    return [i for i, mean in shown.items() if mean == best]
