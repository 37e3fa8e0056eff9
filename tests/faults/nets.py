"""Networks that `cosda import --build nets:classifier` makes in the process that does the cases."""

from __future__ import annotations

from torch import nn


def classifier() -> nn.Module:
    """A small one of three classes."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
