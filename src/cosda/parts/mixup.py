"""Mixup of a batch with itself: one share for the whole batch, one random partner for each image."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Mixing(NamedTuple):
    """λ and the permutation π of one batch."""

    share: float
    partner: Tensor  # (B,)

    def images(self, images: Tensor) -> Tensor:
        """λ·x + (1 - λ)·x[π]; the images themselves where λ is 1."""
        return images if self.share == 1 else torch.lerp(images[self.partner], images, self.share)


def draw_mixing(size: int, beta: float, fold: bool, rng: torch.Generator, device: torch.device) -> Mixing:
    """λ ~ Beta(β, β), folded to max(λ, 1 - λ) if asked; β = 0 means no mixing (λ = 1)."""
    partner = torch.randperm(size, generator=rng)
    share = 1.0
    if beta > 0:
        # Beta from two Gamma draws, because torch's Beta distribution takes no generator.
        gammas = torch._standard_gamma(torch.full((2,), beta, dtype=torch.float64), generator=rng)
        share = float(gammas[0] / gammas.sum())
    if fold:
        share = max(share, 1 - share)
    return Mixing(share, partner.to(device))
