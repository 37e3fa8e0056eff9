"""Agreement with the model that the stage began with: how little has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosda.validators.base import Validator

if TYPE_CHECKING:
    from torch import Tensor


def score(p: Tensor, before: Tensor) -> Tensor:
    """Share of images whose class is as before."""
    return (p.argmax(dim=1) == before).double().mean()


AGREEMENT = Validator("share of images whose class is the one that the model handed to the stage gives", score)
