"""The half cosine along which momenta, gates and rates go."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from cosda.parts.schedule import cosine


def test_the_papers_momentum():
    values = [cosine(0.9, 0.99, e, 20) for e in range(20)]
    assert values[0] == pytest.approx(0.9, abs=1e-15)
    assert values[-1] == pytest.approx(0.98945, abs=5e-6)
    assert values[-1] < 0.99
    assert math.prod(values) == pytest.approx(0.3041, abs=5e-5)


@pytest.mark.parametrize(("start", "end", "epochs", "left"), [(0.95, 0.99, 40, 0.29), (0.95, 0.99, 10, 0.72)])
def test_the_share_of_the_incoming_model_that_is_left(start, end, epochs, left):
    assert math.prod(cosine(start, end, e, epochs) for e in range(epochs)) == pytest.approx(left, abs=0.005)


def test_half_way_is_the_middle():
    assert cosine(2.0, 6.0, 5, 10) == pytest.approx(4.0)


@pytest.mark.parametrize("epoch", [10, 11, 1000])
def test_the_end_is_reached_and_kept(epoch):
    assert cosine(1.0, 0.25, epoch, 10) == 0.25


@pytest.mark.parametrize("value", [0.0, 1.0, 0.3])
def test_a_constant_stays_to_the_last_bit(value):
    assert {cosine(value, value, e, 7) for e in range(7)} == {value}


def test_it_falls_where_the_end_is_lower():
    values = [cosine(1.0, 0.1, e, 12) for e in range(13)]
    assert all(a > b for a, b in pairwise(values))


def test_one_epoch_has_the_start():
    assert cosine(0.9, 0.99, 0, 1) == pytest.approx(0.9)
