"""Interleaved timing: noise of the machine hits all candidates alike, so ratios are steadier than seconds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Ratio:
    """The median of the ratios of all rounds, and between which values the middle half of them lies."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Ratio:
        """The same in another unit."""
        return Ratio(factor * self.value, factor * self.low, factor * self.high)


@dataclass(frozen=True)
class Timing:
    """Seconds of each candidate, round by round."""

    rounds: Mapping[str, list[float]]

    def seconds(self, name: str) -> float:
        """The median of a candidate."""
        return statistics.median(self.rounds[name])

    @property
    def medians(self) -> dict[str, float]:
        """The medians of all candidates."""
        return {name: self.seconds(name) for name in self.rounds}

    def ratio(self, top: str, bottom: str) -> Ratio:
        """Time of one candidate through that of another, from the pairs that were taken right after each other."""
        return spread([t / b for t, b in zip(self.rounds[top], self.rounds[bottom], strict=True)])


def spread(values: list[float]) -> Ratio:
    """Median and quartiles."""
    if len(values) == 1:
        return Ratio(values[0], values[0], values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Ratio(middle, low, high)


def interleaved(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    warm: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> Timing:
    """Call all candidates once a round, after rounds that do not count.

    Every other round goes backwards, so that none always comes after the same one. What computes with one thread may
    be timed by ``time.process_time``: others at work then do not interrupt a long call more often than a short one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(warm + rounds):
        order = list(candidates.items())
        for name, candidate in order if number % 2 else reversed(order):
            start = clock()
            candidate()
            if number >= warm:
                seconds[name].append(clock() - start)
    return Timing(seconds)


def seconds(candidate: Callable[[], object], count: int = 1) -> float:
    """Of one call; the mean of so many, after one that sets things up."""
    candidate()
    start = time.perf_counter()
    for _ in range(count):
        candidate()
    return (time.perf_counter() - start) / count


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Within the block torch computes with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
