"""Cut a box out of each picture of a batch, resize it, mirror some: the costly part of a view.

Torch resizes uint8 pictures fast, but only with one box for a whole batch. So there are four ways to the same pictures:

    one box for all pictures            one call of torch
    a box each, pictures large          one call of torch for each picture
    a box each, pictures small          two matrix products for the whole batch: single calls cost more than their work
    on other devices than the CPU       a grid of floats, near to the others: no rounding, no antialiasing
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

SMALL = 48  # pixels of a side; up to here matrix products are faster than a call for each picture


class Cut(NamedTuple):
    """The box of one picture, and whether it is mirrored."""

    top: int
    left: int
    tall: int
    wide: int
    mirror: bool


def crop(items: Tensor, boxes: Tensor, size: int, mirrored: Tensor | None = None) -> Tensor:
    """Cut a box (top, left, height, width) out of each picture and resize it; (B, 3, S, S) in 0..255.

    The pictures for which ``mirrored`` says so are turned left to right.
    """
    mirrored = torch.zeros(len(items), dtype=torch.bool) if mirrored is None else mirrored
    if items.device.type != "cpu":
        return _by_grid(items, boxes, size, mirrored)
    cuts = [Cut(*values) for values in zip(*boxes.T.tolist(), mirrored.tolist(), strict=True)]
    if not cuts[0].mirror and all(cut == cuts[0] for cut in cuts):
        return _resize(items, cuts[0], size)
    if max(size, *items.shape[1:3]) <= SMALL:
        return _by_products(items, cuts, size)
    made = []
    for i, cut in enumerate(cuts):
        picture = _resize(items[i : i + 1], cut, size)
        made.append(picture.flip(3) if cut.mirror else picture)
    return torch.cat(made)


def _resize(items: Tensor, cut: Cut, size: int) -> Tensor:
    """One box out of all pictures, not mirrored."""
    # A view: the memory stays channels-last, as the network wants it.
    pictures = items[:, cut.top : cut.top + cut.tall, cut.left : cut.left + cut.wide].permute(0, 3, 1, 2)
    if (cut.tall, cut.wide) == (size, size):
        return pictures
    return F.interpolate(pictures, size=(size, size), mode="bilinear", antialias=True)


def _by_products(items: Tensor, cuts: list[Cut], size: int) -> Tensor:
    """Resizing is linear along each side: one matrix for the columns of each picture, one for its rows.

    Torch's own resize works with integers and rounds after each side. So does this, to the same pixels: the sums
    are small enough for floats to be exact. The colours of the result lie apart.
    """
    count, height, width, _ = items.shape
    across = torch.stack([_matrix(cut.left, cut.wide, width, size, cut.mirror) for cut in cuts])
    down = torch.stack([_matrix(cut.top, cut.tall, height, size) for cut in cuts])
    pixels = items.permute(0, 1, 3, 2).reshape(count, 3 * height, width).float()
    rows = torch.bmm(pixels, across.transpose(1, 2)).add_(0.5).floor_()
    made = torch.bmm(down, rows.view(count, height, 3 * size)).add_(0.5).floor_()
    return made.view(count, size, 3, size).permute(0, 2, 1, 3)


@cache
def _matrix(start: int, side: int, whole: int, size: int, mirror: bool = False) -> Tensor:
    """What each of ``whole`` old pixels gives to ``size`` new ones if a box cuts ``side`` of them; (size, whole)."""
    matrix = torch.zeros(size, whole)
    matrix[:, start : start + side] = torch.from_numpy(_weights(side, size))
    return matrix.flip(0) if mirror else matrix


def _weights(side: int, size: int) -> NDArray[np.float32]:
    """What each of ``side`` old pixels gives to each of ``size`` new ones; (size, side).

    A new pixel is a mean of old ones under a triangle that reaches to its neighbours, or to the next old pixels if they
    are farther.
    """
    step = side / size
    reach = max(step, 1.0)
    centre = step * (np.arange(size)[:, None] + 0.5)
    weights = np.maximum(0, 1 - np.abs(np.arange(side) + 0.5 - centre) / reach)
    weights /= weights.sum(1, keepdims=True)
    # Torch stores each as a 16-bit integer, with as many binary places as the largest one allows.
    places = 0
    while places < 22 and int(0.5 + weights.max() * 2 ** (places + 1)) < 2**15:
        places += 1
    rounded: NDArray[np.float32] = (np.floor(weights * 2**places + 0.5) / 2**places).astype(np.float32)
    return rounded


def _by_grid(items: Tensor, boxes: Tensor, size: int, mirrored: Tensor) -> Tensor:
    count, height, width, _ = items.shape
    top, left, tall, wide = boxes.to(items.device, torch.float32).unbind(1)
    turned = (1 - 2 * mirrored.float()).to(items.device)  # -1 walks a row backwards
    maps = torch.zeros(count, 2, 3, device=items.device)
    maps[:, 0, 0], maps[:, 0, 2] = turned * wide / width, (2 * left + wide) / width - 1
    maps[:, 1, 1], maps[:, 1, 2] = tall / height, (2 * top + tall) / height - 1
    grid = F.affine_grid(maps, [count, 3, size, size], align_corners=False)
    return F.grid_sample(items.permute(0, 3, 1, 2).float(), grid, padding_mode="border", align_corners=False)
