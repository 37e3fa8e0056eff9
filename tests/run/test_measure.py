"""What is written down and told of a model's confusions on a domain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cosda.run.measure import Measurer
from cosda.watch import Watcher


class Listener(Watcher):
    """Keeps the accuracies that it is told."""

    def __init__(self) -> None:
        self.heard: list[float] = []

    def measured(self, stage: int, epoch: int | None, domain: str, accuracy: float) -> None:
        self.heard.append(accuracy)


# 9 of 10 images of the first class are right, and 1 of 2 of the second.
@pytest.mark.parametrize(("headline", "accuracy"), [("top1", 10 / 12), ("per-class", (0.9 + 0.5) / 2)])
def test_a_watcher_is_told_the_headline_accuracy(headline: str, accuracy: float) -> None:
    listener, written = Listener(), []
    folder = SimpleNamespace(append=lambda kind, **facts: written.append({"kind": kind, **facts}))
    plan = SimpleNamespace(data=SimpleNamespace(headline=headline))
    prepared: Any = SimpleNamespace(plan=plan, watcher=listener)
    measurer = Measurer(prepared, folder)  # type: ignore[arg-type]
    assert measurer.record(np.array([[9, 1], [1, 1]]), 1, None, "hand") == pytest.approx(accuracy)
    assert listener.heard == pytest.approx([accuracy])
    assert (written[0]["correct"], written[0]["images"]) == ([9, 1], [10, 2])
