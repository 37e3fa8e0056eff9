"""A method whose every model is known in advance, for tests of what a run does with models.

Nothing is looked at and nothing is learnt: in each epoch the classifier's bias of the first class grows by a number
that the test gives. So which images change their class, and when, does not depend on a machine's rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from cosda.methods.base import Group, Method, Progress
from cosda.models.artifact import load
from cosda.models.network import Network
from cosda.records.run import Run
from cosda.run.chain import carried_path
from cosda.types import Batch, Losses


@dataclass
class Drift(Method):
    """Moves the bias of the first class by ``pushes``, one for each epoch."""

    title: ClassVar[str] = "the first class is preferred more and more"
    variants: ClassVar[dict[str, dict[str, Any]]] = {}
    pushes: ClassVar[tuple[float, ...]] = ()

    def parameters(self) -> list[Group]:
        return [Group("bias", [self.student.classifier.bias], 1.0)]  # type: ignore[list-item]

    def begin_epoch(self, progress: Progress) -> None:
        super().begin_epoch(progress)
        self.push = self.pushes[progress.epoch]

    def step(self, batch: Batch) -> Losses:
        bias = self.student.classifier.bias
        assert isinstance(bias, torch.Tensor)
        return {"drift": -self.push * bias[0]}


def model(run: Run, stage: int) -> Network:
    """The network that a stage handed on."""
    return load(carried_path(run, stage)).network


def grown(run: Run, stage: int) -> float:
    """By how much the bias of the first class has grown since the source model."""
    before, after = (model(run, number).classifier.bias[0].item() for number in (0, stage))  # type: ignore[index]
    return float(after - before)
