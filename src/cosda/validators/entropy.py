"""Confidence alone. A model that calls every image one class has the best score: see `information`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosda.validators.base import Validator, entropy_of

if TYPE_CHECKING:
    from torch import Tensor


def score(p: Tensor, before: Tensor) -> Tensor:
    """-mean H(p)."""
    return -entropy_of(p).mean()


ENTROPY = Validator("minus the mean entropy of the predictions: confident", score)
