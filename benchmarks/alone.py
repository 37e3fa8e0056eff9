"""Measuring in processes of their own: what one candidate leaves behind must not help or harm the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

from benchmarks.timing import Timing

T = TypeVar("T")


def alone(function: Callable[..., T], *arguments: Any) -> T:
    """What a function of a module returns in a new process."""
    with ProcessPoolExecutor(1, mp_context=_starter()) as pool:
        return pool.submit(function, *arguments).result()


def in_turn(ways: Mapping[str, Callable[[], float]], rounds: int) -> Timing:
    """Seconds that each way, a function of a module or a partial of one, finds of itself in new processes."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            taken[name].append(alone(way))
    return Timing(taken)


@cache
def _starter() -> BaseContext:
    """New processes come from one that has loaded the libraries and done nothing else, where the system can do that."""
    if sys.platform in ("win32", "darwin"):
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(["cosda.api", "torch._dynamo"])  # the latter is loaded by every optimiser
    return context
