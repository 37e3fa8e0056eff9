"""What a model file says of a network's shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any

from cosda.models.encoders import build_encoder
from cosda.models.masks import add_masks
from cosda.models.network import Network
from cosda.settings import Range, typed

WRAPPED = "wrapped"  # the encoder of a model of the user's own, or of a library's whole classifier
_NAMES = {"builder": "build"}  # fields that model.json calls otherwise
_Size = Annotated[int, Range(1, 2**24)]
_RARE = ("tail", "domains", "builder", "config", "batch")  # left out where a model has none


@dataclass(frozen=True)
class Architecture:
    """All that is needed to build a network of the same shape again; its weights are stored apart."""

    encoder: str
    bottleneck: Annotated[int, Range(0, 2**24)]
    classes: _Size
    input_width: _Size | None = None  # of feature vectors; None for images
    classifier: str | None = None  # where the last layer sat in a model of the user's own; see `wrap`
    tail: bool = False  # whether more than that layer was left out, such as a softmax
    domains: tuple[str, ...] = ()  # those that have a mask; see `masks`
    builder: str | None = None  # who builds a wrapped model again: timm/NAME, …, or a function; see `builders`
    config: Mapping[str, Any] | None = field(default=None, hash=False)  # what a library needs for that beside the name
    batch: _Size | None = None  # the only number of images that a graph takes at once; see `graph`

    def build(self, weights: str | None = None) -> Network:
        """A network with a new head on an encoder with the given weights (see `build_encoder`)."""
        encoder = build_encoder(self.encoder, weights, self.input_width)
        network = Network.build(encoder, encoder.width, self.bottleneck, self.classes)
        return add_masks(network, self.bottleneck, self.domains) if self.domains else network

    def as_json(self) -> dict[str, Any]:
        """Plain values for model.json; what few models have is left out of all others."""
        values = asdict(self) | {"domains": list(self.domains)}
        return {_NAMES.get(key, key): value for key, value in values.items() if key not in _RARE or value}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], where: str = "an architecture") -> Architecture:
        """The reverse of `as_json`."""
        own = {_NAMES.get(each.name, each.name): each.name for each in fields(cls)}
        renamed = {own.get(key, key): value for key, value in values.items()} if isinstance(values, Mapping) else values
        found: Architecture = typed(cls, renamed, where, "architecture")
        return found
