"""Tests of differences against slow references: all signs counted one by one, and another library."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import rankdata, wilcoxon

from cosda.records.run import Run
from cosda.report.chapters import section_grids
from cosda.report.contents import contents
from cosda.report.grids import ACCURACY, Entry, Grid, Heading, Line, with_best
from cosda.report.significance import compare, holm, signed_rank, with_comparisons
from cosda.report.tables import Cell, build


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
    found = {c.row: c for c in compare("average", "accuracy", rows, "best", "seed and pair")}
    assert set(found) == {"worse", "few"}
    assert (found["worse"].values, found["worse"].p) == (8, pytest.approx(2 / 256))
    assert (found["few"].values, found["few"].p, found["few"].unsure) == (5, None, False)
    # The row with too few values is not tested, so the correction is over one test.


def grid_of(values: dict[str, list[float]]) -> Grid:
    rows = tuple(Line(name, "6", ((Entry(Cell(tuple(found))),),)) for name, found in values.items())
    heading = Heading("average", (ACCURACY,), average=True)
    place = ("b", (), "inductive", "top1", "last", "")
    grid = with_best(Grid("pairs", "title", *place, (heading,), rows))
    keyed = {name: [dict(enumerate(found))] for name, found in values.items()}
    return with_comparisons(grid, 0, keyed, "seed and pair")


def test_rows_that_may_be_as_good_are_marked() -> None:
    best = [0.80, 0.82, 0.84, 0.86, 0.88, 0.90, 0.91, 0.92]
    close = [b - d for b, d in zip(best, [0.01, -0.02, 0.03, -0.01, 0.02, 0.01, -0.01, 0.01], strict=True)]
    far = [b - 0.1 - i / 100 for i, b in enumerate(best)]
    grid = grid_of({"far": far, "best": best, "close": close})
    assert {row.name: row.entries[0][0].unsure for row in grid.rows} == {"far": False, "best": False, "close": True}
    p = {c.row: c.p for c in grid.comparisons}
    # Two tests: the smaller p counts twice.
    assert p["far"] == pytest.approx(2 * 2 / 256)
    assert p["close"] == pytest.approx(by_all_signs([-1, 2, -3, 1, -2, -1, 1, -1]))


def test_equal_rows_are_no_contest() -> None:
    assert grid_of({"a": [0.5] * 6, "b": [0.5] * 6}).comparisons == ()


def test_the_number_of_values_is_told(paper_runs: list[Run]) -> None:
    pairs = contents(paper_runs).across[0]
    found = {(c.measure, c.row): c for c in pairs.comparisons}
    assert found["accuracy", "cosda"].reference == "nrc"
    assert found["accuracy", "cosda"].values == 11  # two seeds of six pairs, one of them interrupted
    assert found["accuracy", "cosda"].unsure
    cosda = next(row for row in pairs.rows if row.name == "cosda").entries[-1][0]
    assert cosda.unsure
    assert any("cosda: p = 0.164 (11 values)" in note and "5 values are too few" in note for note in pairs.notes)
    assert any("paired by seed and pair" in note for note in pairs.notes)


def test_chains_are_compared_over_seeds_and_domains(runs: list[Run]) -> None:
    section = next(s for s in build(runs).sections if len(s.rows) == 4)
    summary = section_grids(section)[0]
    assert {(c.row, c.values) for c in summary.comparisons} == {
        ("source", 6), ("bn", 6), ("cosda (no-dual-speed)", 6)
    }  # fmt: skip
    assert {c.reference for c in summary.comparisons} == {"cosda"}
    # cosda against bn: 96-80, 79-66, 74-60, 95-78, 85-64, 76-64, all above: 2 / 64, times 3 tests.
    assert {c.row: c.p for c in summary.comparisons}["bn"] == pytest.approx(6 / 64)
