"""Edge images, and mixing them into training images as EdgeMix does.

An operator takes normalised images and gives edge maps (B, 1, H, W) from 0 (edge) to 1 (no edge, the white
background), each stretched to this range. Two are here: `sobel` needs nothing, `DexiNedEdges` a trained network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cosda.preprocessing import Preprocessing

Operator = Callable[[Tensor, Preprocessing], Tensor]
EdgeInput = Literal["centred", "authors"]

DEXINED_MEAN = (103.939, 116.779, 123.68)  # of blue, green, red in 0..255, with which DexiNed was trained
TINY = 1e-12


@dataclass
class EdgeMixing:
    """share · image + (1 - share) · edges, until the last epochs, which see clean images.

    Edges in 0..1 are added to normalised images, as the authors do.
    """

    operator: Operator
    share: float
    clean_from: int  # the first epoch with clean images
    epoch: int = 0

    @torch.no_grad()
    def __call__(self, images: Tensor, preprocessing: Preprocessing) -> Tensor:
        """Mix a batch of normalised images with their edges."""
        if self.epoch >= self.clean_from:
            return images
        edges = self.operator(images, preprocessing)
        return self.share * images + (1 - self.share) * edges


def sobel(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """The size of the brightness gradient, averaged over colours so that edges between equally bright ones count."""
    from kornia.filters import sobel as gradient

    return 1 - _stretch(gradient(_pixels(images, preprocessing)).mean(dim=1, keepdim=True), (1, 2, 3))


class DexiNedEdges:
    """The mean of DexiNed's six side maps and its fused map (Soria et al., https://arxiv.org/abs/1909.01955).

    DexiNed was trained on blue-green-red pixels in 0..255 minus their mean. The authors of CoSDA hand it red-green-blue
    pixels, each normalised image stretched to 0..255 and nothing subtracted; ``fed="authors"`` does so too.
    """

    def __init__(self, network: nn.Module, fed: EdgeInput = "centred") -> None:
        self.network = network.eval().requires_grad_(False)
        self.fed = fed

    @torch.no_grad()
    def __call__(self, images: Tensor, preprocessing: Preprocessing) -> Tensor:
        """Edge maps of a batch."""
        sides = self.network.get_features(self._input(images, preprocessing))  # type: ignore[operator]
        fused = self.network.block_cat(torch.cat(sides, dim=1))  # type: ignore[operator]
        maps = _stretch(torch.cat([*sides, fused], dim=1).sigmoid(), (2, 3))
        rounded = (255 * maps).floor() / 255  # the 8 bits of the authors
        return 1 - _stretch(rounded.mean(dim=1, keepdim=True), (1, 2, 3))

    def _input(self, images: Tensor, preprocessing: Preprocessing) -> Tensor:
        if self.fed == "authors":
            return 255 * _stretch(images, (1, 2, 3))
        mean = torch.tensor(DEXINED_MEAN, device=images.device).view(3, 1, 1)
        return 255 * _pixels(images, preprocessing).flip(1) - mean


def new_dexined() -> nn.Module:
    """DexiNed as kornia has it, untrained: its weights are the user's to give, and are never downloaded."""
    from kornia.models.dexined import DexiNed

    with torch.random.fork_rng(devices=[]):  # first weights are drawn from torch's global generator
        return DexiNed(pretrained=False)  # type: ignore[no-any-return]


def _stretch(values: Tensor, dims: tuple[int, ...]) -> Tensor:
    """To 0..1 from the smallest to the largest over ``dims``; 0 where all are equal."""
    low = values.amin(dims, keepdim=True)
    return (values - low) / (values.amax(dims, keepdim=True) - low).clamp(min=TINY)


def _pixels(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Normalised images back to 0..1."""
    mean, std = _constants(preprocessing, images)
    return (images * std + mean).clamp(0, 1)


def _constants(preprocessing: Preprocessing, like: Tensor) -> tuple[Tensor, Tensor]:
    mean = torch.tensor(preprocessing.mean, device=like.device).view(3, 1, 1)
    std = torch.tensor(preprocessing.std, device=like.device).view(3, 1, 1)
    return mean, std
