"""All encoders by the name that the command line uses."""

from __future__ import annotations

from functools import partial

from cosda.errors import CosdaError
from cosda.models.encoders.base import (
    FEATURE_VECTORS,
    IMAGENET,
    Encoder,
    Family,
    Identity,
    Named,
    Preprocessing,
    identity,
    prefix,
)
from cosda.models.encoders.external import timm, torchvision, transformers
from cosda.models.encoders.lite import Lite0, imagenet_weights
from cosda.models.encoders.resnet import resnet, small_resnet
from cosda.registry import Registry

__all__ = ["ENCODERS", "FEATURE_VECTORS", "IMAGENET", "Encoder", "Family", "Named", "Preprocessing", "build_encoder"]


class Encoders(Registry[Named | Family]):
    """Encoders by name. A key such as ``timm/NAME`` or ``identity:D`` stands for all names with its prefix."""

    def find(self, name: str) -> Named | Family:
        """The entry of a name, or of the family to which it belongs.

        Raises:
            CosdaError: there is none; the message names the nearest one and all others.
        """
        families = {prefix(key)[0]: key for key, entry in self.items() if isinstance(entry, Family)}
        return super().find(name if name in self else families.get(prefix(name)[0], name))


ENCODERS = Encoders(
    "encoder",
    {
        "small": Named("a ResNet for images of 32 pixels", small_resnet),
        "lite0": Named("EfficientNet-Lite0 with ImageNet's weights", Lite0, imagenet_weights),
        "resnet18": Named("ResNet-18, for torchvision's weights", partial(resnet, 18)),
        "resnet34": Named("ResNet-34, for torchvision's weights", partial(resnet, 34)),
        "resnet50": Named("ResNet-50, for torchvision's weights", partial(resnet, 50)),
        "resnet101": Named("ResNet-101, for torchvision's weights", partial(resnet, 101)),
        "resnet50-v1": Named("ResNet-50 as Keras has it", partial(resnet, 50, stride_first=True)),
        "resnet101-v1": Named("ResNet-101 as Keras has it", partial(resnet, 101, stride_first=True)),
        "timm/NAME": Family("a network of timm", timm),
        "torchvision/NAME": Family("a classifier of torchvision", torchvision),
        "hf/NAME": Family("a vision model of transformers", transformers),
        "identity:D": Family("feature vectors of width D, as they are", identity, has_weights=False),
    },
    group="cosda.encoders",
    of=(Named, Family),
)


def build_encoder(name: str, weights: str | None = None, input_width: int | None = None) -> Encoder:
    """Build an encoder by name. Its random weights, if any, come from torch's global generator, as in torch itself.

    Args:
        name: one of `ENCODERS`, such as ``resnet50``, ``timm/NAME`` or ``identity:D``; ``identity`` with
            ``input_width``.
        weights: a .safetensors, .pth or .pt file; "pretrained" for those that come with the encoder or that its library
            fetches; "random" for none. Left out, `lite0` has ImageNet's and all others have random ones.
        input_width: the width of the data, where these are feature vectors.

    Raises:
        CosdaError: the encoder, its library or its weights are not there, or do not fit.
    """
    entry = ENCODERS.find(name)
    if weights == "pretrained" and not entry.has_weights:
        raise CosdaError(f"'{name}' comes without weights: give a file, such as torchvision's, as weights=FILE.")
    encoder = entry.build(f"identity:{input_width}" if name == "identity" and input_width else name, weights)
    if isinstance(encoder, Identity) and input_width not in (None, encoder.width):
        raise CosdaError(f"'{name}' does not fit the data's feature vectors of width {input_width}.")
    return encoder
