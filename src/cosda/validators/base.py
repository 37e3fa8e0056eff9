"""What a validator is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Validator:
    """A score of a model, from its predictions alone; the larger, the better.

    ``score`` takes the class probabilities (N, C) of the target's training images, in double precision, and the
    classes (N,) that the model handed to the stage gave them.
    """

    title: str
    score: Callable[[Tensor, Tensor], Tensor]


def entropy_of(p: Tensor) -> Tensor:
    """-Σ p log p over the last dimension."""
    import torch

    return torch.special.entr(p).sum(dim=-1)  # type: ignore[no-any-return]
