"""BatchNorm re-estimation: replace the statistics by those of the target domain; weights stay as they are.

The second baseline: what a change of statistics alone gains on the target and loses on earlier domains (as in
Li et al., "Revisiting Batch Normalization for Practical Domain Adaptation", https://arxiv.org/abs/1603.04779).
It keeps nothing between epochs. A network without BatchNorm is left as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from cosda.methods.base import Group, Method, Progress
from cosda.models.statistics import batch_norms
from cosda.types import Batch, Losses


@dataclass
class BN(Method):
    """Averages the statistics of all batches of one epoch."""

    title: ClassVar[str] = "only BatchNorm statistics re-estimated on the target"
    variants: ClassVar[dict[str, dict[str, Any]]] = {}
    fixed_epochs: ClassVar[int | None] = 1

    def parameters(self) -> list[Group]:
        """No weights are trained."""
        return []

    def begin_epoch(self, progress: Progress) -> None:
        """Forget the statistics; with momentum None torch keeps the plain average over batches."""
        super().begin_epoch(progress)
        self.momenta = [norm.momentum for norm in batch_norms(self.student)]
        for norm in batch_norms(self.student):
            norm.reset_running_stats()
            norm.momentum = None

    @torch.no_grad()
    def step(self, batch: Batch) -> Losses:
        """One forward pass; the BatchNorm layers note what they see."""
        self.student(batch.images)
        return {}

    def end_epoch(self) -> None:
        """Leave the layers as they were found."""
        for norm, momentum in zip(batch_norms(self.student), self.momenta, strict=True):
            norm.momentum = momentum
