"""NRC: Exploiting the Intrinsic Neighborhood Structure for Source-free Domain Adaptation.
Yang et al., 2021, https://arxiv.org/abs/2110.04202

Images of one class lie close together even where the source model names them wrongly. So each image learns the
predictions of its nearest neighbours: fully where the two are in each other's neighbourhood, a tenth where not, and a
tenth from the neighbours of its neighbours; a last term keeps the batch's mean prediction diverse. All parts of the
network are trained. A bank of unit features and predictions of all training images is filled at each epoch's start
(`bank = "epoch"`) or once (`"persistent"`), and refreshed with every batch; a persistent one is kept between epochs.

Where we depart: the original finds an image itself by taking the first hit away, which is another image where there
are duplicates; here its own index is masked. The attraction is written as the dot product that the original's
`kl_div(p, S)` has as its gradient. The self-term of the paper is in no code, and not here. The authors' code of the
CoSDA study changes K and M of all later targets too when half of the epochs are over; here each target begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from cosda import losses
from cosda.methods.neighbours import NeighbourMethod
from cosda.settings import setting
from cosda.types import Batch, Losses, Output, Target


@dataclass
class NRC(NeighbourMethod):
    """Neighbours, reciprocal weights, extended neighbours, diversity."""

    title: ClassVar[str] = "learns the predictions of neighbours, and of theirs"
    with_cosda: ClassVar[dict[str, Any]] = {"label_temperature": 0.01, "neighbours_later": 5, "extended_later": 4}

    # K and M are those of the study's Office-Home and Office-31; other benchmarks have theirs in their presets.
    neighbours: int = setting(4, "nearest images whose predictions an image learns", low=1, symbol="K")
    extended: int = setting(3, "nearest images of each neighbour", low=1, symbol="M")
    extended_later: int | None = setting(None, "the same after half of the epochs; 'none' keeps it", low=1)
    mutual: float = setting(
        1.0, "weight of a neighbour that has the image among its own; the original's VisDA code makes it 0.1", low=0
    )
    one_sided: float = setting(0.1, "weight of other neighbours, and of extended ones", low=0, symbol="r")
    label_temperature: float | None = setting(
        None, "sharpen labels to softmax(mean score / T), as the authors do with CoSDA; 'none' takes them as they are",
        low=1e-6, symbol="T",
    )  # fmt: skip

    def label(self, batch: Batch, seen: Output) -> Target:
        """Σ_j A_ij S_j / a_i with weight a_i = Σ_j A_ij, and the mean of the extended S_l with weight r·K·M."""
        bank = self.remember(batch, seen)
        near = bank.neighbours(batch.index, self.scheduled(self.neighbours, self.neighbours_later))  # (B, K)
        extended = bank.neighbours(near, self.scheduled(self.extended, self.extended_later))  # (B, K, M)

        mutual = (extended == batch.index[:, None, None]).any(dim=2)  # i ∈ N_M(j)
        affinity = self.one_sided + (self.mutual - self.one_sided) * mutual.float()  # A (B, K)
        total = affinity.sum(dim=1, keepdim=True)  # a (B, 1)
        first = (affinity[:, :, None] * bank.scores[near].float()).sum(dim=1) / total.clamp(min=1e-12)
        further = extended.flatten(1)  # (B, K·M); empty where the domain is a single image
        second = bank.scores[further].float().sum(dim=1) / max(1, further.shape[1])

        labels = torch.stack([first, second], dim=1)
        if self.label_temperature is not None:
            labels = torch.softmax(labels / self.label_temperature, dim=2)
        return Target(labels, torch.cat([total, torch.full_like(total, self.one_sided * further.shape[1])], dim=1))

    def losses(self, output: Output, target: Target) -> Losses:
        """-(1/B) Σ_i Σ_l w_il ⟨label_il, p_i⟩ + Σ_c p̄_c log p̄_c."""
        return {
            "attraction": losses.attraction(output.logits, target.labels, target.weights),
            "diversity": losses.negative_diversity(output.logits.softmax(dim=1)),
        }
