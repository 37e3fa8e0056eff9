"""Sharpened predictions: each image learns its own prediction, made more confident, while their mean stays diverse.

p^(1/T), normalised, is a sharper copy of a prediction p where T < 1. Learning it makes the network more confident.
Alone it would end with one class for all images, so the mean prediction of a batch is kept diverse, as in SHOT.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from cosda import Batch, Method, setting
from cosda.losses import consistency


@dataclass
class Sharpen(Method):
    """The fields made with `setting` are what `--set` changes and what `cosda methods sharpen` lists."""

    title: ClassVar[str] = "learns its own predictions, sharpened"

    temperature: float = setting(0.5, "the smaller, the sharper", low=0.05, high=1, symbol="T")
    diversity: float = setting(1.0, "weight of the diversity of the mean prediction", low=0, symbol="β")

    def step(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Two weighted terms by name. The runner adds and records them, and does backward and the optimiser's step."""
        logits = self.student(batch.images).logits  # (B, C)
        labels = torch.softmax(logits.detach() / self.temperature, dim=1)
        mean = torch.softmax(logits, dim=1).mean(dim=0)
        return {
            "sharpening": consistency(logits, labels, torch.ones(len(logits), device=logits.device)),
            "diversity": self.diversity * (mean * torch.log(mean + 1e-5)).sum(),
        }
