"""The words that all layers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """What a method gets to see of a target domain: images and their positions. There are no labels."""

    views: tuple[Tensor, ...]  # one (B, 3, H, W) or (B, d) tensor for each view that the method asked for
    index: Tensor  # (B,) positions in the domain's training split

    @property
    def images(self) -> Tensor:
        """The first view."""
        return self.views[0]

    def __len__(self) -> int:
        return len(self.index)


class Output(NamedTuple):
    """What a network says about a batch."""

    features: Tensor  # (B, d) after the bottleneck
    logits: Tensor  # (B, C)


@dataclass(frozen=True)
class Target:
    """What an objective wants the student to say: L soft labels an image, each with a weight."""

    labels: Tensor  # (B, L, C) probabilities
    weights: Tensor  # (B, L); 0 leaves the image out

    def mixed(self, share: float, partner: Tensor) -> Target:
        """Mix labels with those of the partner images; an image keeps its own weight."""
        return Target(share * self.labels + (1 - share) * self.labels[partner], self.weights)


Losses = dict[str, Tensor]  # weighted terms by name; the runner adds them up
