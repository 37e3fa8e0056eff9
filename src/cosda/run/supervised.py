"""Training with labels, as a method for the one loop: how the source model is made.

It is not in the registry. Labels reach it by the picture's index and not through the batch, so the batches that
adapting methods see have no place for labels at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from cosda import losses
from cosda.methods.base import Method
from cosda.settings import setting
from cosda.types import Batch, Losses


@dataclass
class Supervised(Method):
    """Cross-entropy with label smoothing; encoder at a tenth of the rate."""

    title: ClassVar[str] = "training on the labelled source"

    encoder_rate: float = setting(0.1, "learning rate of the encoder relative to the head's", low=0, high=1)
    label_smoothing: float = setting(0.1, "share of the label that is spread over all classes", low=0, high=1)
    labels: Tensor | None = None  # (N,) by index

    def step(self, batch: Batch) -> Losses:
        """Learn the labels of the batch."""
        assert self.labels is not None
        output = self.student(batch.images)
        return {"cross_entropy": losses.label_smoothing(output.logits, self.labels[batch.index], self.label_smoothing)}
