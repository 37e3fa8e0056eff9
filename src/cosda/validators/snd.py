"""Soft neighbourhood density. Saito et al., ICCV 2021, https://arxiv.org/abs/2108.10860"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosda.validators.base import Validator, entropy_of

if TYPE_CHECKING:
    from torch import Tensor

TEMPERATURE = 0.05  # of the paper


def score(p: Tensor, before: Tensor) -> Tensor:
    """Mean entropy of softmax(⟨p_i, p_j⟩ / T) over the others j; an image is not its own neighbour."""
    from torch.nn import functional as F

    if len(p) < 2:
        return p.new_zeros(())
    unit = F.normalize(p)
    similarity = (unit @ unit.T / TEMPERATURE).fill_diagonal_(float("-inf"))
    return entropy_of(similarity.softmax(dim=1)).mean()


SND = Validator("soft neighbourhood density: entropy of each prediction's similarity to all others", score)
