"""CoTTA's test-time augmentation (from KATANA, https://arxiv.org/abs/2109.08191), for whole batches on the device.

It belongs to images in 0..1, not to normalised tensors: gamma first clips to 0..1, which would destroy everything
below the mean. So a batch is de-normalised, augmented, clipped and normalised again. All random numbers come from
the given stream; torch's global generator is not touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cosda.preprocessing import Preprocessing

Range = tuple[float, float]
BLUR = 5  # pixels of each side of the Gaussian
MARGIN = BLUR // 2


@dataclass(frozen=True)
class Augmentation:
    """The ranges from which one batch draws its values, or each image its own. The defaults are CoTTA's."""

    brightness: Range = (0.6, 1.4)
    contrast: Range = (0.7, 1.3)
    saturation: Range = (0.5, 1.5)
    hue: Range = (-0.06, 0.06)  # of the colour circle
    gamma: Range = (0.7, 1.3)
    degrees: Range = (-15.0, 15.0)
    translation: float = 1 / 8  # of the side: the original moves by 1/16 of an image padded to twice its side
    scale: Range = (0.9, 1.1)
    blur: Range = (0.001, 0.5)  # σ in pixels
    noise: float = 0.005  # σ
    per_image: bool = False

    def __call__(self, images: Tensor, preprocessing: Preprocessing, rng: torch.Generator) -> Tensor:
        """Normalised images (B, 3, S, S) to normalised images."""
        mean = torch.tensor(preprocessing.mean, device=images.device).view(3, 1, 1)
        std = torch.tensor(preprocessing.std, device=images.device).view(3, 1, 1)
        return (self.on_images(images * std + mean, preprocessing.flip, rng) - mean) / std

    def on_images(self, images: Tensor, flip: bool, rng: torch.Generator) -> Tensor:
        """Images in 0..1 to images in 0..1; ``flip`` allows mirror images."""
        from kornia.filters import gaussian_blur2d

        count = len(images) if self.per_image else 1

        def draw(low: float, high: float) -> Tensor:
            return torch.empty(count).uniform_(low, high, generator=rng)

        images = images.clamp(0, 1)
        names = list(COLOURS)
        for number in torch.randperm(len(names), generator=rng).tolist():
            value = draw(*getattr(self, names[number])).to(images.device)[:, None, None, None]
            images = COLOURS[names[number]](images, value)
        images = _warp(
            images,
            torch.deg2rad(draw(*self.degrees)),
            torch.stack([draw(-self.translation, self.translation) for _ in "xy"], 1),
            draw(*self.scale),
        )
        sigma = draw(*self.blur).to(images.device)[:, None].expand(-1, 2)
        images = gaussian_blur2d(images, (BLUR, BLUR), sigma)[..., MARGIN:-MARGIN, MARGIN:-MARGIN]
        if flip:
            flipped = (draw(0, 1) < 0.5)[:, None, None, None].to(images.device)
            images = torch.where(flipped, images.flip(3), images)
        if self.noise:
            images = images + self.noise * normal_like(images, rng)
        return images.clamp(0, 1)


def lend(rng: torch.Generator, device: torch.device) -> torch.Generator:
    """A generator on the device that goes on from the stream: large tensors are drawn where they are needed."""
    seed = int(torch.randint(2**62, (1,), generator=rng))
    return torch.Generator(device).manual_seed(seed)


def normal_like(tensor: Tensor, rng: torch.Generator) -> Tensor:
    """Standard normal numbers in a tensor's shape, on its device."""
    return torch.empty(tensor.shape, device=tensor.device).normal_(generator=lend(rng, tensor.device))


def _warp(images: Tensor, angle: Tensor, move: Tensor, scale: Tensor) -> Tensor:
    """Rotate, scale and move each image about its centre; the result has a margin for the blur.

    The original pads with the image's edge by half its side, maps and cuts out the centre. No map of these ranges
    reaches beyond that padding, so to sample with the edge repeated gives the same for a quarter of the pixels.
    """
    count, _, side, _ = images.shape
    cos, sin = angle.cos() / scale, angle.sin() / scale
    turn = torch.stack([torch.stack([cos, sin], 1), torch.stack([-sin, cos], 1)], 1)  # where a pixel comes from
    offset = turn @ (-2 * move)[:, :, None]  # a side is 2 long in the coordinates of grid_sample
    maps = torch.cat([turn * (side + 2 * MARGIN) / side, offset], 2).to(images.device, images.dtype)
    shape = [count, 3, side + 2 * MARGIN, side + 2 * MARGIN]
    grid = F.affine_grid(maps.expand(count, 2, 3), shape, align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _grey(images: Tensor) -> Tensor:
    weights = torch.tensor([0.299, 0.587, 0.114], device=images.device).view(3, 1, 1)
    return (images * weights).sum(1, keepdim=True)


def _blend(images: Tensor, other: Tensor | float, share: Tensor) -> Tensor:
    """share·x + (1 - share)·other, clipped to 0..1; a share above 1 leads away from the other."""
    return (share * images + (1 - share) * other).clamp(0, 1)


def _shift_hue(images: Tensor, turn: Tensor) -> Tensor:
    from kornia.enhance import adjust_hue

    return adjust_hue(images, 2 * math.pi * turn)  # type: ignore[no-any-return]


COLOURS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "brightness": lambda x, value: _blend(x, 0.0, value),
    "contrast": lambda x, value: _blend(x, _grey(x).mean((2, 3), keepdim=True), value),
    "saturation": lambda x, value: _blend(x, _grey(x), value),
    "hue": _shift_hue,
    "gamma": lambda x, value: x.clamp(0, 1).pow(value),  # hue may leave 0..1 by a rounding error
}
