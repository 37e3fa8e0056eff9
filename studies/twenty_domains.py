"""Printed digits and 19 synthetic changes of them: one .npz of twenty domains that `cosda bench` reads.

Each domain has images of its own: 300 to adapt to and 150 to measure, drawn from all printed digits of the embedded
benchmark. The changes are those of common corruption benchmarks, as far as they suit images of 32 pixels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cosda.data import digits

TRAIN, TEST = 300, 150


def noise(images: Tensor, rng: torch.Generator, strength: float) -> Tensor:
    """Gaussian noise."""
    return images + strength * torch.randn(images.shape, generator=rng)


def salt(images: Tensor, rng: torch.Generator, share: float) -> Tensor:
    """Black and white pixels."""
    drawn = torch.rand((len(images), 1, *images.shape[2:]), generator=rng)
    return torch.where(drawn < share / 2, 0.0, torch.where(drawn > 1 - share / 2, 1.0, images))


def blur(images: Tensor, width: int, height: int) -> Tensor:
    """The mean over a box: out of focus, or moved."""
    padded = F.pad(images, (width // 2, width // 2, height // 2, height // 2), mode="replicate")
    return F.avg_pool2d(padded, (height, width), stride=1)


def turn(images: Tensor, degrees: float, scale: float = 1.0, shear: float = 0.0) -> Tensor:
    """Rotated, scaled and sheared about the middle; what comes in from outside is the edge's colour."""
    angle = torch.tensor(degrees * torch.pi / 180)
    cos, sin = torch.cos(angle) / scale, torch.sin(angle) / scale
    matrix = torch.stack([cos, -sin + shear, torch.tensor(0.0), sin, cos, torch.tensor(0.0)]).view(1, 2, 3)
    grid = F.affine_grid(matrix.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def shadow(images: Tensor) -> Tensor:
    """Darker from left to right."""
    return images * torch.linspace(1, 0.3, images.shape[3])


def tint(images: Tensor, *colour: float) -> Tensor:
    """Seen through coloured glass."""
    return images * torch.tensor(colour).view(1, 3, 1, 1)


def blocks(images: Tensor, side: int) -> Tensor:
    """Fewer pixels."""
    small = F.avg_pool2d(images, side)
    return F.interpolate(small, scale_factor=side)


Change = Callable[[Tensor, torch.Generator], Tensor]
CHANGES: dict[str, Change] = {
    "noise": lambda x, rng: noise(x, rng, 0.25),
    "blur": lambda x, rng: blur(x, 5, 5),
    "contrast": lambda x, rng: 0.5 + 0.25 * (x - 0.5),
    "red": lambda x, rng: tint(x, 1.0, 0.3, 0.3),
    "turned": lambda x, rng: turn(x, 25),
    "dark": lambda x, rng: 0.3 * x,
    "salt": lambda x, rng: salt(x, rng, 0.15),
    "negative": lambda x, rng: 1 - x,
    "moved": lambda x, rng: blur(x, 9, 1),
    "small": lambda x, rng: turn(x, 0, 0.65),
    "bright": lambda x, rng: 0.6 + 0.4 * x,
    "green": lambda x, rng: tint(x, 0.3, 1.0, 0.3),
    "sheared": lambda x, rng: turn(x, 0, 1.0, 0.5),
    "blocks": lambda x, rng: blocks(x, 4),
    "shadow": lambda x, rng: shadow(x),
    "blue": lambda x, rng: tint(x, 0.3, 0.3, 1.0),
    "counter": lambda x, rng: turn(x, -25),
    "grain": lambda x, rng: x + 0.5 * blur(torch.randn(x.shape, generator=rng), 3, 3),
    "large": lambda x, rng: turn(x, 0, 1.4),
}


def main(target: Path) -> None:
    """Write all domains."""
    source = digits.load().domains["print"]
    assert source.labels is not None
    everything = torch.from_numpy(np.asarray(source.items[:])).permute(0, 3, 1, 2).float() / 255
    arrays: dict[str, np.ndarray] = {}
    for number, name in enumerate(("print", *CHANGES)):
        rng = torch.Generator().manual_seed(number)
        order = torch.randperm(len(everything), generator=rng)
        parts = {"train": order[: 4 * TRAIN] if number == 0 else order[:TRAIN], "test": order[-TEST:]}
        for split, part in parts.items():
            images = everything[part] if number == 0 else CHANGES[name](everything[part], rng)
            pixels = (images.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).numpy()
            arrays[f"{name}_{split}_images"], arrays[f"{name}_{split}_labels"] = pixels, source.labels[part.numpy()]
    np.savez(target, **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
