"""Could a method's distance from the best one be chance? Paired values, ranks, no assumption on their distribution.

The Wilcoxon signed-rank test: if a difference is chance, its sign is a toss of a coin. Under that, the sum of the
ranks of the positive differences has a known distribution, computed here by counting all 2^n signs. Counting is
exact with ties too, which accuracies (shares of a few hundred images) often have and tables of the test leave out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cosda.report.model.table import PairedTest, Row, Table

FEWEST = 6  # pairs of values for a test: with five, no difference could have a p below 0.05

Values = Mapping[Any, float]  # by what they are paired by


def signed_rank(differences: Sequence[float]) -> float:
    """Two-sided p of Wilcoxon's test; differences of zero say nothing and are left out."""
    import numpy as np  # not above: 'cosda report --help' needs none of it

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


def paired_tests(
    column: str, measure: str, rows: Mapping[str, Values], reference: str, paired_by: str
) -> tuple[PairedTest, ...]:
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
        PairedTest(column, measure, name, reference, paired_by, len(values), p.get(name))
        for name, values in differences.items()
    )


def against_best(table: Table, place: int, rows: Mapping[str, Values], paired_by: str) -> Table:
    """A table whose rows are tested against the best mean of a column; ``rows`` are the values behind the means."""
    best = next((row.name for row in table.rows if row.cells[place].best), None)
    return table if best is None else against(table, place, rows, best, paired_by)


def against(table: Table, place: int, rows: Mapping[str, Values], reference: str, paired_by: str) -> Table:
    """A table whose rows are tested against one of them in a column; cells that may be chance are marked."""
    column = table.columns[place]
    tests = paired_tests(column.title, column.measure, rows, reference, paired_by)
    chance = {test.row for test in tests if test.may_be_chance}
    marked = tuple(_marked(row, place) if row.name in chance else row for row in table.rows)
    return replace(table, rows=marked, tests=(*table.tests, *tests))


def _marked(row: Row, place: int) -> Row:
    cells = (replace(cell, may_be_chance=True) if i == place else cell for i, cell in enumerate(row.cells))
    return replace(row, cells=tuple(cells))
