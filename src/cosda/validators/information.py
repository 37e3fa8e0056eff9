"""Mutual information of images and predicted classes, as SHOT and CoSDA maximise it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosda.validators.base import Validator, entropy_of

if TYPE_CHECKING:
    from torch import Tensor


def score(p: Tensor, before: Tensor) -> Tensor:
    """H(p̄) - mean H(p): entropy of the mean prediction minus mean entropy of the predictions."""
    return entropy_of(p.mean(dim=0)) - entropy_of(p).mean()


INFORMATION = Validator(
    "entropy of the mean prediction minus mean entropy of the predictions: confident and diverse", score
)
