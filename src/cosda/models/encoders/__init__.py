"""The encoders by name."""

from __future__ import annotations

from collections.abc import Callable

from cosda.errors import CosdaError, nearest
from cosda.models.encoders.base import FEATURE_VECTORS, IMAGENET, Encoder, Identity, Preprocessing
from cosda.models.encoders.external import EXTRAS, build_external
from cosda.models.encoders.lite import lite0
from cosda.models.encoders.resnet import ResNet, resnet, small_resnet
from cosda.models.encoders.weights import load_weights

__all__ = [
    "FEATURE_VECTORS",
    "IMAGENET",
    "NAMES",
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
    "resnet50-v1": lambda: resnet(50, stride_first=True),
    "resnet101-v1": lambda: resnet(101, stride_first=True),
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
        return build_external(name, weights)
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
