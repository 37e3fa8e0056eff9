"""Training with labels, as a method for the one loop: how the source model is made.

It is not in the registry. Labels reach it by the image's index and not through the batch, so the batches that
adapting methods see have no place for labels at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from cosda.methods.base import Group, Method, trained
from cosda.settings import setting
from cosda.types import Batch, Losses


@dataclass
class Supervised(Method):
    """Cross-entropy with label smoothing, unless the method wants more; encoder at a tenth of the rate."""

    title: ClassVar[str] = "training on the labelled source"

    encoder_rate: float = setting(0.1, "learning rate of the encoder relative to the head's", low=0, high=1)
    label_smoothing: float = setting(0.1, "share of the label that is spread over all classes", low=0, high=1)
    labels: Tensor | None = None  # (N,) by index
    made_for: Method = field(default_factory=Method)  # says what its source model learns

    def parameters(self) -> list[Group]:
        """Everything, masks too where there are any."""
        return trained(self.student, {"encoder": self.encoder_rate, "masks": 1.0})

    def step(self, batch: Batch) -> Losses:
        """Learn the labels of the batch."""
        assert self.labels is not None
        return self.made_for.source_losses(self.student, batch.images, self.labels[batch.index], self.label_smoothing)
