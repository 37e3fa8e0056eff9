"""Could a method's distance from the best one be chance? Paired values, ranks, no assumption on their shape.

The Wilcoxon signed-rank test: if a difference is chance, its sign is a toss of a coin. Under that, the sum of the
ranks of the positive differences has a known distribution, computed here by counting all 2^n signs. Counting is
exact with ties too, which accuracies (shares of a few hundred images) often have and tables of the test leave out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cosda.report.grids import FEWEST, Comparison, Grid, Line

Values = Mapping[Any, float]  # by what they are paired by


def signed_rank(differences: Sequence[float]) -> float:
    """Two-sided p of Wilcoxon's test; differences of zero say nothing and are left out."""
    given = np.round(np.asarray(differences, dtype=float), 9)  # 0.3 - 0.2 and 0.2 - 0.1 are a tie
    given = given[given != 0]
    if not len(given):
        return 1.0
    _, place, count = np.unique(np.abs(given), return_inverse=True, return_counts=True)
    twice = (2 * np.cumsum(count) - count + 1)[place]  # twice the mean rank of each tie: whole numbers
    share = np.zeros(twice.sum() + 1)  # share[s]: of all ways to choose the signs, those with positive ranks s
    share[0] = 1.0
    for rank in twice:
        share = share / 2
        share[rank:] += share[:-rank].copy()
    positive = twice[given > 0].sum()
    return float(min(1.0, 2 * min(share[: positive + 1].sum(), share[positive:].sum())))


def holm(values: Sequence[float]) -> list[float]:
    """Holm's correction: p of several tests such that one false alarm among all of them has the level asked for."""
    corrected = [0.0] * len(values)
    largest = 0.0
    for place, i in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        largest = max(largest, min(1.0, (len(values) - place) * values[i]))
        corrected[i] = largest
    return corrected


def compare(
    column: str, measure: str, rows: Mapping[str, Values], reference: str, paired_by: str
) -> tuple[Comparison, ...]:
    """Each row against the reference, over the keys (seed and pair, or seed and domain) that both have."""
    against = rows[reference]
    found = {
        name: [value - against[key] for key, value in values.items() if key in against]
        for name, values in rows.items()
        if name != reference
    }
    differences = {name: values for name, values in found.items() if values}
    tested = [name for name, values in differences.items() if len(values) >= FEWEST]
    p = dict(zip(tested, holm([signed_rank(differences[name]) for name in tested]), strict=True))
    return tuple(
        Comparison(column, measure, name, reference, paired_by, len(values), p.get(name))
        for name, values in differences.items()
    )


def with_comparisons(grid: Grid, column: int, rows: Mapping[str, Sequence[Values]], paired_by: str) -> Grid:
    """A grid whose rows are compared with the best mean of a column, for each of the column's measures.

    ``rows`` holds for each row and measure the values behind the mean.
    """
    heading = grid.columns[column]
    for j, measure in enumerate(heading.measures):
        best = next((row.name for row in grid.rows if row.entries[column][j].best), None)
        if best is not None:
            values = {name: of_measures[j] for name, of_measures in rows.items()}
            grid = mark(grid, column, j, compare(heading.title, measure.name, values, best, paired_by))
    return grid


def mark(grid: Grid, column: int, j: int, found: Sequence[Comparison]) -> Grid:
    """A grid with these comparisons, and the entries whose difference may be chance marked."""
    unsure = {comparison.row for comparison in found if comparison.unsure}
    rows = tuple(_marked(row, column, j) if row.name in unsure else row for row in grid.rows)
    return replace(grid, rows=rows, comparisons=(*grid.comparisons, *found))


def _marked(row: Line, column: int, j: int) -> Line:
    entries = [list(cell) for cell in row.entries]
    entries[column][j] = replace(entries[column][j], unsure=True)
    return replace(row, entries=tuple(map(tuple, entries)))
