"""The encoders by name, and the architecture that a model file describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from cosda.errors import CosdaError, nearest
from cosda.models.base import FEATURE_VECTORS, IMAGENET, Encoder, Identity, Preprocessing
from cosda.models.external import EXTRAS, external
from cosda.models.lite import lite0
from cosda.models.masks import add_masks
from cosda.models.network import Network
from cosda.models.resnet import ResNet, resnet, small_resnet
from cosda.models.weights import load_weights

__all__ = [
    "FEATURE_VECTORS",
    "IMAGENET",
    "NAMES",
    "Architecture",
    "Encoder",
    "Preprocessing",
    "build_encoder",
]

RESNETS: dict[str, Callable[[], ResNet]] = {
    "small": small_resnet,
    "resnet18": lambda: resnet(18),
    "resnet34": lambda: resnet(34),
    "resnet50": lambda: resnet(50),
    "resnet101": lambda: resnet(101),
}
NAMES = (*RESNETS, "lite0", "identity")  # and timm/NAME, torchvision/NAME, hf/NAME


def build_encoder(name: str, weights: str | None = None, input_width: int | None = None) -> Encoder:
    """Build an encoder by name.

    ``name``: one of `NAMES`, `identity:D` for feature vectors of width D (or `identity` and ``input_width``),
    or `timm/NAME`, `torchvision/NAME`, `hf/NAME`.

    ``weights``: a .safetensors, .pth or .pt file; "pretrained" for those that the encoder's library ships or
    fetches; "random" for none. Left out, `lite0` has ImageNet's weights and all others have random ones.
    """
    if name.partition(":")[0] == "identity":
        return _identity(name, weights, input_width)
    if name == "lite0":
        return lite0(weights)
    if name.partition("/")[0] in EXTRAS and "/" in name:
        return external(name, weights)
    if name not in RESNETS:
        known = ", ".join((*NAMES, *(f"{library}/NAME" for library in EXTRAS)))
        raise CosdaError(f"there is no encoder '{name}'.{nearest(name, NAMES)} Known: {known}.")
    encoder = RESNETS[name]()
    if weights == "pretrained":
        raise CosdaError(f"'{name}' comes without weights: give a file, such as torchvision's, as weights=FILE.")
    if weights not in (None, "random"):
        load_weights(encoder, weights)
    return encoder


def _identity(name: str, weights: str | None, input_width: int | None) -> Identity:
    given = name.partition(":")[2]
    if weights not in (None, "random"):
        raise CosdaError("the encoder 'identity' has no weights; leave weights out.")
    if given and not (given.isascii() and given.isdigit()):
        raise CosdaError(f"the width in '{name}' is not a number; write, for example, identity:1280.")
    width = int(given) if given else input_width
    if not width or width < 0:
        raise CosdaError("'identity' needs the width of the feature vectors: write, for example, identity:1280.")
    if input_width is not None and input_width != width:
        raise CosdaError(f"'{name}' does not fit the data's feature vectors of width {input_width}.")
    return Identity(width)


@dataclass(frozen=True)
class Architecture:
    """All that is needed to build a network of the same shape again; its weights are stored apart."""

    encoder: str
    bottleneck: int
    classes: int
    input_width: int | None = None  # of feature vectors; None for pictures
    classifier: str | None = None  # where the last layer sat in a model of the user's own; see `wrap`
    domains: tuple[str, ...] = ()  # those that have a mask; see `masks`

    def build(self, weights: str | None = None) -> Network:
        """A network with a new head on an encoder with the given weights (see `build_encoder`)."""
        if self.encoder == "wrapped":
            raise CosdaError(
                "this network is a model of your own that cosda wrapped, and only your code can build it: "
                "cosda.load(path, build=function), where the function returns such a model, trained or not."
            )
        encoder = build_encoder(self.encoder, weights, self.input_width)
        network = Network.build(encoder, encoder.width, self.bottleneck, self.classes)
        return add_masks(network, self.bottleneck, self.domains) if self.domains else network

    def as_json(self) -> dict[str, Any]:
        """Plain values for model.json; a model without masks is described as it always was."""
        values = asdict(self) | {"domains": list(self.domains)}
        return {key: value for key, value in values.items() if key != "domains" or value}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Architecture:
        """The reverse of `as_json`."""
        known = {field.name for field in fields(cls)}
        for key in values:
            if key not in known:
                raise CosdaError(f"an architecture has no '{key}'.{nearest(key, known)}")
        return cls(**{**values, "domains": tuple(values.get("domains", ()))})
