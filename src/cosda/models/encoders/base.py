"""What every encoder has: a width, and the preprocessing that its weights expect."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cosda.errors import CosdaError
from cosda.preprocessing import FEATURE_VECTORS, IMAGENET, Preprocessing

__all__ = ["FEATURE_VECTORS", "IMAGENET", "Encoder", "Identity", "Preprocessing"]


class Encoder(nn.Module):
    """A module that turns a batch into features (B, width)."""

    width: int
    preprocessing: Preprocessing


class Identity(Encoder):
    """The encoder of feature vectors: they are features already."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.preprocessing = FEATURE_VECTORS

    def forward(self, features: Tensor) -> Tensor:
        """The features (B, width), after a check that the head was made for them."""
        # While torch traces, sizes are tensors, and to compare them would draw a warning.
        tracing = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        if not tracing and (features.ndim != 2 or features.shape[1] != self.width):
            raise CosdaError(
                f"the model takes feature vectors of width {self.width}, "
                f"but got a batch of shape {tuple(features.shape)}."
            )
        return features
