"""Durations and sizes as a person reads them."""

from __future__ import annotations

import pytest

from cosda.units import amount, duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (89, "89 s"),
        (90, "2 min"),
        (5399, "90 min"),
        (5400, "1.5 h"),
        (47.9 * 3600, "47.9 h"),
        (48 * 3600, "2.0 days"),
    ],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("size", "said"), [(0, "0 B"), (999, "999 B"), (1000, "1 KiB"), (2**20, "1 MiB"), (115e9, "107.1 GiB")]
)
def test_amounts(size: float, said: str) -> None:
    assert amount(size) == said
