"""Measuring in processes of their own: what one candidate leaves behind must not help or harm the other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
STATUS = Path("/proc/self/status")


def alone(function: Callable[..., T], *arguments: Any) -> T:
    """What a function of a module returns in a new process."""
    with ProcessPoolExecutor(1, mp_context=_starter()) as pool:
        return pool.submit(function, *arguments).result()


@cache
def _starter() -> BaseContext:
    """New processes come from one that has loaded the libraries and done nothing else, where the system can do that."""
    if sys.platform in ("win32", "darwin"):
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(["cosda.run.api", "torch._dynamo"])  # the latter is loaded by every optimiser
    return context


def memory(kind: str) -> int:
    """Bytes of this process, as Linux counts them.

    ``VmHWM`` is the most that it ever held. The more usual ``ru_maxrss`` will not do: a process inherits it from the
    one that started it. ``RssAnon`` is what it holds now of its own; mapped files, which the system may drop at any
    time, are ``RssFile``.
    """
    for line in STATUS.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == kind:
            return int(value.split()[0]) * 1024
    raise ValueError(f"{STATUS} has no {kind}")
