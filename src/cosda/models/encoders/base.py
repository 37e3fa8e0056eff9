"""What every encoder has, and how the registry knows it: by a name of its own, or by the prefix of its family."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from cosda.errors import CosdaError
from cosda.models.encoders.weights import load_weights
from cosda.preprocessing import FEATURE_VECTORS, IMAGENET, Preprocessing

__all__ = ["FEATURE_VECTORS", "IMAGENET", "Encoder", "Family", "Identity", "Named", "Preprocessing"]


class Encoder(nn.Module):
    """A module that turns a batch into features (B, width)."""

    width: int
    preprocessing: Preprocessing  # what its weights expect

    def load_file(self, path: str | Path) -> None:
        """Take the weights of a file; a last layer in the file is ignored, everything else must fit."""
        load_weights(self, path)


@dataclass(frozen=True)
class Named:
    """A registry entry of one encoder.

    Example:
        >>> ENCODERS["mine"] = Named("a small network of mine", MyEncoder)
    """

    title: str
    untrained: Callable[[], Encoder]
    file: Callable[[], str | Path] | None = None  # where weights lie that come with it; they are its default

    @property
    def has_weights(self) -> bool:
        """Whether weights come with it."""
        return self.file is not None

    def build(self, name: str, weights: str | None) -> Encoder:
        """The encoder with weights as in `build_encoder`."""
        encoder = self.untrained()
        if weights in (None, "pretrained") and self.file is not None:
            encoder.load_file(self.file())
        elif weights not in (None, "random"):
            encoder.load_file(weights)
        return encoder


@dataclass(frozen=True)
class Family:
    """A registry entry of all encoders whose names begin alike, such as ``timm/``: its key is ``timm/NAME``."""

    title: str
    make: Callable[[str, str | None], Encoder]  # from what follows the prefix, and weights as in `build_encoder`
    has_weights: bool = True  # whether "pretrained" means something

    def build(self, name: str, weights: str | None) -> Encoder:
        """The encoder with weights as in `build_encoder`."""
        return self.make(prefix(name)[1], weights)


def prefix(name: str) -> tuple[str, str]:
    """What stands before the first / or : of a name, and what after it."""
    first, *rest = re.split("[/:]", name, maxsplit=1)
    return first, "".join(rest)


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


def identity(width: str, weights: str | None) -> Identity:
    """The encoder of feature vectors of a width."""
    if weights not in (None, "random"):
        raise CosdaError("the encoder 'identity' has no weights; leave weights out.")
    if width and not (width.isascii() and width.isdigit()):
        raise CosdaError(f"the width in 'identity:{width}' is not a number; write, for example, identity:1280.")
    if not width or int(width) == 0:
        raise CosdaError("'identity' needs the width of the feature vectors: write, for example, identity:1280.")
    return Identity(int(width))
