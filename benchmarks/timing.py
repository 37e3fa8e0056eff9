"""Interleaved timing: noise of the machine hits all candidates alike, so ratios are steadier than seconds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def interleaved(candidates: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each candidate; all are called once a round, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 1):
        for name, candidate in candidates.items():
            start = time.perf_counter()
            candidate()
            if number:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
