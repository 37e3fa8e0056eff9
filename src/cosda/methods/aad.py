"""AaD: Attracting and Dispersing: A Simple Approach for Source-free Domain Adaptation.
Yang et al., 2022, https://arxiv.org/abs/2205.04183

Each image's prediction is drawn to those of its nearest neighbours and pushed from those of all others in the batch,
the less so the longer the training lasts. All parts of the network are trained. A bank of unit features and
predictions of all training images is filled at each epoch's start (`bank = "epoch"`) or once (`"persistent"`, the
original), and refreshed with every batch; a persistent one is kept between epochs.

Where we depart: the authors' code of the CoSDA study leaves the bank as it is within an epoch (`"epoch-static"`);
an image is kept from being its own neighbour by its index and not by taking the first hit away; the attraction is
written as the dot product that the original's `kl_div(p, S)` has as its gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from cosda import losses
from cosda.methods.base import Progress
from cosda.methods.neighbours import NeighbourMethod
from cosda.settings import setting
from cosda.types import Batch, Losses, Output, Target


@dataclass
class AaD(NeighbourMethod):
    """Attraction to neighbours, dispersion of the batch."""

    title: ClassVar[str] = "attracted by neighbours, dispersed from the rest of the batch"
    variants: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "authors": {"bank": "epoch-static"}}

    # K is that of the study's Office-31, α and γ are those of all its benchmarks.
    neighbours: int = setting(3, "nearest images whose predictions an image learns", low=1, symbol="K")
    dispersion: float = setting(0.4, "weight of the dispersion at the start; it sums over the batch", low=0, symbol="α")
    decay: float = setting(0.96, "factor of the dispersion after each epoch", low=0, high=1, symbol="γ")
    decay_power: float | None = setting(
        None, "let the dispersion fall as (1 + 10t/T)^-β at every step t of T instead, as the original does",
        low=0, symbol="β",
    )  # fmt: skip

    def begin_epoch(self, progress: Progress) -> None:
        """Fill the bank; no batch of this epoch has been labelled."""
        super().begin_epoch(progress)
        self.labelled = 0

    def label(self, batch: Batch, seen: Output) -> Target:
        """The mean of the neighbours' S_j, with weight K."""
        self.labelled += 1
        bank = self.remember(batch, seen)
        near = bank.neighbours(batch.index, self.scheduled(self.neighbours, self.neighbours_later))  # (B, K)
        labels = bank.scores[near].float().sum(dim=1, keepdim=True) / max(1, near.shape[1])
        return Target(labels, labels.new_full((len(batch), 1), near.shape[1]))

    def losses(self, output: Output, target: Target) -> Losses:
        """-(1/B) Σ_i Σ_j ⟨S_j, p_i⟩ + λ·(1/B) Σ_i Σ_{j≠i} ⟨p_i, p_j⟩."""
        return {"attraction": losses.attraction(output.logits, target.labels, target.weights), **self.spread(output)}

    def spread(self, output: Output) -> Losses:
        """The dispersion alone; no term where its weight is 0."""
        return {"dispersion": self.strength * losses.dispersion(output.logits)} if self.dispersion else {}

    @property
    def strength(self) -> float:
        """λ = α·γ^e, or the original's α·(1 + 10t/T)^-β."""
        if self.decay_power is None:
            return self.dispersion * self.decay**self.progress.epoch
        done = self.progress.epoch + max(0, self.labelled - 1) / self.loader.steps
        return self.dispersion * float((1 + 10 * done / self.progress.epochs) ** -self.decay_power)
