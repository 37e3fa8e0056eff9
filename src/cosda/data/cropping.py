"""Cut a box out of each image of a batch, resize it, mirror some: the costly part of a view.

Torch resizes uint8 images fast, but only with one box for a whole batch. So there are four ways to the same images:

    one box for all images            one call of torch
    a box each, images large          one call of torch for each image
    a box each, images small          two matrix products for the whole batch: single calls cost more than their work
    on other devices than the CPU       a grid of floats, near to the others: no rounding, no antialiasing
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

SMALL = 48  # pixels of a side; up to here matrix products are faster than a call for each image


def crop(items: Tensor, boxes: Tensor, size: int, mirrored: Tensor | None = None) -> Tensor:
    """Cut a box (top, left, height, width) out of each image and resize it; (B, 3, S, S) in 0..255.

    The images for which ``mirrored`` says so are turned left to right.
    """
    mirrored = torch.zeros(len(items), dtype=torch.bool) if mirrored is None else mirrored
    if items.device.type != "cpu":
        return _by_grid(items, boxes, size, mirrored)
    if not mirrored.any() and (boxes == boxes[0]).all():
        return _resize(items, boxes[0].tolist(), size)
    if max(size, *items.shape[1:3]) <= SMALL:
        return _by_products(items, boxes, size, mirrored)
    made = []
    for item, box, mirror in zip(items[:, None], boxes.tolist(), mirrored.tolist(), strict=True):
        image = _resize(item, box, size)
        made.append(image.flip(3) if mirror else image)
    return torch.cat(made)


def _resize(items: Tensor, box: Sequence[int], size: int) -> Tensor:
    """One box out of all images, not mirrored."""
    top, left, tall, wide = box
    # A view: the memory stays channels-last, as the network wants it.
    images = items[:, top : top + tall, left : left + wide].permute(0, 3, 1, 2)
    if (tall, wide) == (size, size):
        return images
    return F.interpolate(images, size=(size, size), mode="bilinear", antialias=True)


def _by_products(items: Tensor, boxes: Tensor, size: int, mirrored: Tensor) -> Tensor:
    """Resizing is linear along each side: one matrix for the columns of each image, one for its rows.

    Torch's own resize works with integers and rounds after each side. So does this, to the same pixels: the sums
    are small enough for floats to be exact.
    """
    count, height, width, _ = items.shape
    top, left, tall, wide = boxes.unbind(1)
    plain = width * (width + 1) // 2  # boxes along a line; after their matrices come the mirrored ones
    across = _matrices(width, size).index_select(0, _number(left, wide) + plain * mirrored)
    down = _matrices(height, size).index_select(0, _number(top, tall))
    pixels = items.permute(0, 1, 3, 2).reshape(count, 3 * height, width).float()
    rows = torch.bmm(pixels, across.transpose(1, 2)).add_(0.5).floor_()
    made = torch.bmm(down, rows.view(count, height, 3 * size)).add_(0.5).floor_()
    # A line of an image is all its reds, all its greens, all its blues. As channels of an image one pixel wide they
    # are put in order by a call that is made for it, which is faster than a copy colour by colour.
    ordered = F.channel_shuffle(made.view(count, size, 1, 3 * size).permute(0, 3, 1, 2), 3)
    return ordered.permute(0, 2, 3, 1).reshape(count, size, size, 3).permute(0, 3, 1, 2)


def _number(start: Tensor, side: Tensor) -> Tensor:
    """The place of a box's matrix among all: boxes are counted by where they end, then by where they start."""
    end = start + side
    return end * (end - 1) // 2 + start


@cache
def _matrices(whole: int, size: int) -> Tensor:
    """What each of ``whole`` old pixels gives to ``size`` new ones, for every box along a side, plain and mirrored.

    (2 · boxes, size, whole), which is 7 MB for 32 of 37 pixels. Picking them from a table takes Python no time.
    """
    weights = {side: torch.from_numpy(_weights(side, size)) for side in range(1, whole + 1)}
    boxes = [(start, end) for end in range(1, whole + 1) for start in range(end)]  # in the order of `_number`
    plain = torch.zeros(len(boxes), size, whole)
    for matrix, (start, end) in zip(plain, boxes, strict=True):
        matrix[:, start:end] = weights[end - start]
    return torch.cat([plain, plain.flip(1)])


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
