"""Runs whose models are known in advance; `drift.py` has the method."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pytest

from cosda.api import run_chain
from cosda.methods import METHODS
from cosda.records.run import Run
from drift import Drift
from tiny import read, tiny_benchmark

# One batch an epoch and SGD at a rate of 1 without momentum: the bias grows by the very numbers that a test gives.
PLAIN = ("lr=1", "lr_end=1", "momentum=0", "weight_decay=0", "batch_size=64")
SOURCE = ("source.epochs=5", "source.batch_size=8", "source.lr=0.1", "network.bottleneck=8")


class Drifting(Protocol):
    """Does a run in which the bias of the first class grows by ``pushes``, one for each epoch of a stage."""

    def __call__(
        self, out: Path, pushes: tuple[float, ...], *changes: str, domains: tuple[str, ...] = ..., **more: Any
    ) -> Run: ...


@pytest.fixture
def drifting(monkeypatch: pytest.MonkeyPatch) -> Drifting:
    def run(
        out: Path, pushes: tuple[float, ...], *changes: str, domains: tuple[str, ...] = ("one", "two"), **more: Any
    ) -> Run:
        monkeypatch.setitem(METHODS, "drift", type("Pushed", (Drift,), {"pushes": pushes}))
        changes = (f"epochs={len(pushes)}", *PLAIN, *SOURCE, *changes)
        return run_chain(
            tiny_benchmark(features=True), "drift", domains=domains, settings=read(changes), out=out, **more
        )

    return run
