"""Residual networks up to global average pooling: images (B, 3, H, W) -> features (B, width).

"Deep Residual Learning for Image Recognition", He et al. 2016, https://arxiv.org/abs/1512.03385

The modules of ResNet-18/34/50/101 carry the names that torchvision gives them, so that its weight files fit. The
last layer (`fc`) is left out: the classifier belongs to the `Network`.

Bottleneck blocks come in two layouts, which have the same names and shapes. The paper and Keras halve the image in
the first convolution, 1x1 (v1); torchvision halves it in the second, 3x3 (v1.5). Weights of one load into the other
and are worse there, so `weights.py` compares the layouts where a file names its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from cosda.models.encoders.base import IMAGENET, Encoder, Preprocessing


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that keeps the image's size (divided by the stride); BatchNorm follows, so no bias."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class ResidualBlock(nn.Module):
    """What both kinds of block share: the way past the convolutions, which may have to change shape."""

    expansion: ClassVar[int]  # output channels for each inner channel

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        outputs = channels * self.expansion
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def shortcut(self, images: Tensor) -> Tensor:
        """The input, in the shape of the output."""
        return images if self.downsample is None else self.downsample(images)


class BasicBlock(ResidualBlock):
    """Two 3x3 convolutions: ResNet-18, ResNet-34 and `small`."""

    expansion = 1

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__(inputs, channels, stride)
        self.conv1 = convolution(inputs, channels, 3, stride)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = convolution(channels, channels, 3)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, inputs, H, W) to (B, channels, H/stride, W/stride)."""
        inner = self.relu(self.bn1(self.conv1(images)))
        output: Tensor = self.relu(self.bn2(self.conv2(inner)) + self.shortcut(images))
        return output


class BottleneckBlock(ResidualBlock):
    """1x1 to fewer channels, 3x3 among them, 1x1 back to many: ResNet-50 and ResNet-101 as torchvision has them."""

    expansion = 4
    stride_first: ClassVar[bool] = False  # whether the stride sits on the first convolution or on the second

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__(inputs, channels, stride)
        first, second = (stride, 1) if self.stride_first else (1, stride)
        self.conv1 = convolution(inputs, channels, 1, first)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = convolution(channels, channels, 3, second)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = convolution(channels, channels * self.expansion, 1)
        self.bn3 = nn.BatchNorm2d(channels * self.expansion)

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, inputs, H, W) to (B, 4 channels, H/stride, W/stride)."""
        inner = self.relu(self.bn1(self.conv1(images)))
        inner = self.relu(self.bn2(self.conv2(inner)))
        output: Tensor = self.relu(self.bn3(self.conv3(inner)) + self.shortcut(images))
        return output


class StrideFirstBlock(BottleneckBlock):
    """The same as the paper and Keras have it."""

    stride_first = True


class ResNet(Encoder):
    """A stem, stages of residual blocks, and the mean over the remaining positions."""

    def __init__(
        self, block: type[ResidualBlock], blocks: Sequence[int], channels: Sequence[int], small: bool = False
    ) -> None:
        super().__init__()
        first = channels[0]
        # 32x32 images are halved once at the start; photographs are halved twice, as in the paper.
        self.conv1 = convolution(3, first, 3 if small else 7, stride=2)
        self.bn1 = nn.BatchNorm2d(first)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        inputs = first
        self.stages: list[str] = []
        for number, (depth, width) in enumerate(zip(blocks, channels, strict=True), start=1):
            strides = [1 if number == 1 else 2] + [1] * (depth - 1)
            stage = nn.Sequential()
            for stride in strides:
                stage.append(block(inputs, width, stride))
                inputs = width * block.expansion
            self.stages.append(f"layer{number}")
            self.add_module(self.stages[-1], stage)
        self.width = inputs
        self.preprocessing = Preprocessing(size=32, mean=(0.5,) * 3, std=(0.5,) * 3) if small else IMAGENET
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Features (B, width) of images (B, 3, H, W)."""
        maps: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for stage in self.stages:
            maps = self.get_submodule(stage)(maps)
        return maps.mean(dim=(2, 3))


def resnet(depth: int, stride_first: bool = False) -> ResNet:
    """ResNet-18, -34, -50 or -101 with torchvision's names, untrained.

    ``stride_first``: ResNet-50 or -101 in the layout v1. The smaller ones have one layout only.
    """
    bottleneck = StrideFirstBlock if stride_first else BottleneckBlock
    block, blocks = {
        18: (BasicBlock, (2, 2, 2, 2)),
        34: (BasicBlock, (3, 4, 6, 3)),
        50: (bottleneck, (3, 4, 6, 3)),
        101: (bottleneck, (3, 4, 23, 3)),
    }[depth]
    return ResNet(block, blocks, (64, 128, 256, 512))


def small_resnet() -> ResNet:
    """A ResNet for 32x32 images that two processor cores train at thousands of images a second."""
    return ResNet(BasicBlock, (1, 1, 1), (16, 32, 64), small=True)
