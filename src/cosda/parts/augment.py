"""CoTTA's test-time augmentation (from KATANA, https://arxiv.org/abs/2109.08191), for whole batches on the device.

It belongs to pictures in 0..1, not to normalised tensors: gamma first clips to 0..1, which would destroy everything
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
    """The ranges from which one batch draws its values, or each picture its own. The defaults are CoTTA's."""

    brightness: Range = (0.6, 1.4)
    contrast: Range = (0.7, 1.3)
    saturation: Range = (0.5, 1.5)
    hue: Range = (-0.06, 0.06)  # of the colour circle
    gamma: Range = (0.7, 1.3)
    degrees: Range = (-15.0, 15.0)
    translation: float = 1 / 8  # of the side: the original moves by 1/16 of a picture padded to twice its side
    scale: Range = (0.9, 1.1)
    blur: Range = (0.001, 0.5)  # σ in pixels
    noise: float = 0.005  # σ
    per_picture: bool = False

    def __call__(self, images: Tensor, how: Preprocessing, rng: torch.Generator) -> Tensor:
        """Normalised pictures (B, 3, S, S) to normalised pictures."""
        mean = torch.tensor(how.mean, device=images.device).view(3, 1, 1)
        std = torch.tensor(how.std, device=images.device).view(3, 1, 1)
        return (self.on_pictures(images * std + mean, how.flip, rng) - mean) / std

    def on_pictures(self, pictures: Tensor, flip: bool, rng: torch.Generator) -> Tensor:
        """Pictures in 0..1 to pictures in 0..1; ``flip`` allows mirror images."""
        from kornia.filters import gaussian_blur2d

        count = len(pictures) if self.per_picture else 1

        def draw(low: float, high: float) -> Tensor:
            return torch.empty(count).uniform_(low, high, generator=rng)

        pictures = pictures.clamp(0, 1)
        names = list(COLOURS)
        for number in torch.randperm(len(names), generator=rng).tolist():
            value = draw(*getattr(self, names[number])).to(pictures.device)[:, None, None, None]
            pictures = COLOURS[names[number]](pictures, value)
        pictures = _warp(
            pictures,
            torch.deg2rad(draw(*self.degrees)),
            torch.stack([draw(-self.translation, self.translation) for _ in "xy"], 1),
            draw(*self.scale),
        )
        sigma = draw(*self.blur).to(pictures.device)[:, None].expand(-1, 2)
        pictures = gaussian_blur2d(pictures, (BLUR, BLUR), sigma)[..., MARGIN:-MARGIN, MARGIN:-MARGIN]
        if flip:
            flipped = (draw(0, 1) < 0.5)[:, None, None, None].to(pictures.device)
            pictures = torch.where(flipped, pictures.flip(3), pictures)
        if self.noise:
            pictures = pictures + self.noise * normal_like(pictures, rng)
        return pictures.clamp(0, 1)


def lend(rng: torch.Generator, device: torch.device) -> torch.Generator:
    """A generator on the device that goes on from the stream: large tensors are drawn where they are needed."""
    seed = int(torch.randint(2**62, (1,), generator=rng))
    return torch.Generator(device).manual_seed(seed)


def normal_like(tensor: Tensor, rng: torch.Generator) -> Tensor:
    """Standard normal numbers in a tensor's shape, on its device."""
    return torch.empty(tensor.shape, device=tensor.device).normal_(generator=lend(rng, tensor.device))


def _warp(pictures: Tensor, angle: Tensor, move: Tensor, scale: Tensor) -> Tensor:
    """Rotate, scale and move each picture about its centre; the result has a margin for the blur.

    The original pads with the picture's edge by half its side, maps and cuts out the centre. No map of these ranges
    reaches beyond that padding, so to sample with the edge repeated gives the same for a quarter of the pixels.
    """
    count, _, side, _ = pictures.shape
    cos, sin = angle.cos() / scale, angle.sin() / scale
    turn = torch.stack([torch.stack([cos, sin], 1), torch.stack([-sin, cos], 1)], 1)  # where a pixel comes from
    offset = turn @ (-2 * move)[:, :, None]  # a side is 2 long in the coordinates of grid_sample
    maps = torch.cat([turn * (side + 2 * MARGIN) / side, offset], 2).to(pictures.device, pictures.dtype)
    shape = [count, 3, side + 2 * MARGIN, side + 2 * MARGIN]
    grid = F.affine_grid(maps.expand(count, 2, 3), shape, align_corners=False)
    return F.grid_sample(pictures, grid, padding_mode="border", align_corners=False)


def _grey(pictures: Tensor) -> Tensor:
    weights = torch.tensor([0.299, 0.587, 0.114], device=pictures.device).view(3, 1, 1)
    return (pictures * weights).sum(1, keepdim=True)


def _blend(pictures: Tensor, other: Tensor | float, share: Tensor) -> Tensor:
    """share·x + (1 - share)·other, clipped to 0..1; a share above 1 leads away from the other."""
    return (share * pictures + (1 - share) * other).clamp(0, 1)


def _shift_hue(pictures: Tensor, turn: Tensor) -> Tensor:
    from kornia.enhance import adjust_hue

    return adjust_hue(pictures, 2 * math.pi * turn)  # type: ignore[no-any-return]


COLOURS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "brightness": lambda x, value: _blend(x, 0.0, value),
    "contrast": lambda x, value: _blend(x, _grey(x).mean((2, 3), keepdim=True), value),
    "saturation": lambda x, value: _blend(x, _grey(x), value),
    "hue": _shift_hue,
    "gamma": lambda x, value: x.clamp(0, 1).pow(value),  # hue may leave 0..1 by a rounding error
}
