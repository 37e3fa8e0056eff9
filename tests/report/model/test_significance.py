"""Tests of differences against slow references: all signs counted one by one, and another library."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from cells import cell_of
from scipy.stats import rankdata, wilcoxon

from cosda.records.run import Run
from cosda.report.model.significance import against_best, holm, paired_tests, signed_rank
from cosda.report.model.table import Cell, Column, Row, Table, with_best
from cosda.report.tables.contents import contents


def by_all_signs(differences: list[float]) -> float:
    """p from the definition: how many of the 2^n ways to give signs lie as far out, on the nearer side, twice."""
    kept = [d for d in differences if d]
    ranks = rankdata(np.abs(kept))
    seen = sum(rank for rank, d in zip(ranks, kept, strict=True) if d > 0)
    sums = [
        sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
        for signs in product((0, 1), repeat=len(kept))
    ]
    low, high = (np.mean([s <= seen + 1e-9 for s in sums]), np.mean([s >= seen - 1e-9 for s in sums]))
    return float(min(1.0, 2 * min(low, high)))


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1, 2, 3, 4, 5, 6], 2 / 64),  # all of one sign: one way in 64, on either side
        ([-1, 2, 3, 4, 5, 6], 4 / 64),  # negative ranks sum to 1: two ways
        ([1, 1, 1, 1, 1, 1], 2 / 64),  # ties share their rank
        ([1, -1], 1.0),
        ([0, 0, 0, 0, 0, 0, 0], 1.0),
        ([0, 0, 1, 2, 3, 4, 5], 2 / 32),  # zeros are left out
    ],
)
def test_by_hand(differences: list[float], p: float) -> None:
    assert signed_rank(differences) == pytest.approx(p)


@pytest.mark.parametrize("seed", range(20))
def test_against_all_signs_with_ties_and_zeros(seed: int) -> None:
    random = np.random.default_rng(seed)
    differences = [float(d) for d in random.integers(-3, 5, size=random.integers(3, 12))]
    expected = by_all_signs(differences) if any(differences) else 1.0
    assert signed_rank(differences) == pytest.approx(expected)
    assert signed_rank([-d for d in differences]) == pytest.approx(expected)


@pytest.mark.parametrize("size", [6, 18, 45])
def test_against_scipy_without_ties(size: int) -> None:
    differences = np.random.default_rng(size).normal(0.3, 1.0, size)
    assert signed_rank(list(differences)) == pytest.approx(wilcoxon(differences, method="exact").pvalue)


def test_differences_that_only_rounding_tells_apart_are_ties() -> None:
    assert signed_rank([0.3 - 0.2, 0.2 - 0.1, -0.1, 0.5]) == pytest.approx(by_all_signs([0.1, 0.1, -0.1, 0.5]))


def test_holm_by_hand() -> None:
    # Sorted: 0.01 * 4, 0.02 * 3, 0.03 * 2, 0.04 * 1; never smaller than the one before.
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_values_are_paired_by_what_both_have() -> None:
    best = {(seed, pair): 0.9 + pair / 100 for seed in range(2) for pair in range(4)}
    rows = {
        "best": best,
        "worse": {key: value - 0.01 * (1 + i) for i, (key, value) in enumerate(best.items())},
        "few": {key: 0.5 for key in list(best)[:5]} | {(9, 9): 0.1},
        "none": {},
    }
    found = {test.row: test for test in paired_tests("average", "accuracy", rows, "best", "seed and pair")}
    assert set(found) == {"worse", "few"}
    assert (found["worse"].values, found["worse"].p) == (8, pytest.approx(2 / 256))
    assert (found["few"].values, found["few"].p, found["few"].may_be_chance) == (5, None, False)
    # The row with too few values is not tested, so the correction is over one test.


def table_of(values: dict[str, list[float]]) -> Table:
    rows = tuple(Row(name, (Cell(tuple(found)),), "6") for name, found in values.items())
    columns = (Column("average", "accuracy", average=True),)
    table = with_best(Table("title", "b", (), "inductive", "top1", "last", "", columns, rows))
    return against_best(table, 0, {name: dict(enumerate(found)) for name, found in values.items()}, "seed and pair")


def test_rows_that_may_be_as_good_are_marked() -> None:
    best = [0.80, 0.82, 0.84, 0.86, 0.88, 0.90, 0.91, 0.92]
    close = [b - d for b, d in zip(best, [0.01, -0.02, 0.03, -0.01, 0.02, 0.01, -0.01, 0.01], strict=True)]
    far = [b - 0.1 - i / 100 for i, b in enumerate(best)]
    table = table_of({"far": far, "best": best, "close": close})
    assert {row.name: row.cells[0].may_be_chance for row in table.rows} == {"far": False, "best": False, "close": True}
    p = {test.row: test.p for test in table.tests}
    # Two tests: the smaller p counts twice.
    assert p["far"] == pytest.approx(2 * 2 / 256)
    assert p["close"] == pytest.approx(by_all_signs([-1, 2, -3, 1, -2, -1, 1, -1]))


def test_equal_rows_are_no_contest() -> None:
    assert table_of({"a": [0.5] * 6, "b": [0.5] * 6}).tests == ()


def test_the_number_of_values_is_told(paper_runs: list[Run]) -> None:
    pairs = contents(paper_runs).across[0]
    found = {(test.measure, test.row): test for test in pairs.tests}
    assert found["accuracy", "cosda"].reference == "nrc"
    assert found["accuracy", "cosda"].values == 11  # two seeds of six pairs, one of them interrupted
    assert found["accuracy", "cosda"].may_be_chance
    assert cell_of(pairs, "cosda", "average", "accuracy").may_be_chance
    assert not cell_of(pairs, "nrc", "average", "accuracy").may_be_chance
    assert any("cosda: p = 0.164 (11 values)" in note and "5 values are too few" in note for note in pairs.notes)
    assert any("paired by seed and pair" in note for note in pairs.notes)
