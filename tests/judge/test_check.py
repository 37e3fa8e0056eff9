"""Intervals and the paired test, against sums written out."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from cosda.judge.check import compare


def tail(count: int, images: int, p: float) -> float:
    """The probability of at least so many of so many."""
    return sum(comb(images, k) * p**k * (1 - p) ** (images - k) for k in range(count, images + 1))


def test_the_interval_is_that_of_clopper_and_pearson() -> None:
    correct = np.array([True] * 14 + [False] * 6)
    counted = compare(correct, correct).before
    assert (counted.correct, counted.images, counted.accuracy) == (14, 20, 0.7)
    assert tail(14, 20, counted.low) == pytest.approx(0.025)
    assert 1 - tail(15, 20, counted.high) == pytest.approx(0.025)


def test_all_and_none_have_one_sided_ends() -> None:
    all_right, none = np.ones(10, bool), np.zeros(10, bool)
    found = compare(all_right, none)
    assert found.before.high == 1
    assert found.after.low == 0


def test_the_paired_test_looks_only_at_what_differs() -> None:
    before = np.array([True] * 90 + [False] * 10)
    after = before.copy()
    after[:1] = False
    after[90:98] = True
    found = compare(before, after)
    assert (found.better, found.worse) == (8, 1)
    assert found.p_value == pytest.approx(2 * tail(8, 9, 0.5))
    assert compare(before, before).p_value == 1
