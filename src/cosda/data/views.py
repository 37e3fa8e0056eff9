"""Views of whole batches: uint8 images in, normalised float images out, on the device.

Every view is a box for each image, cut out and resized to the network's size; the views differ only in how the
boxes are drawn. Two profiles are in use in the field:

    profile   weak (training)                              test
    cosda     box of 75 to 100 % of the area, aspect 3:4   the whole image
              to 4:3
    shot      box of 7/8 of each side, anywhere            the same box in the centre

Weak views are flipped at random where that makes sense. The strong view is a weak one under AutoAugment's ImageNet
policy. Feature vectors have no views: they pass as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cosda.preprocessing import Preprocessing

SHOT_SIDE = 7 / 8  # 224 of 256
AREA = (0.75, 1.0)
ASPECT = (3 / 4, 4 / 3)


class Draw(NamedTuple):
    """The chance of one batch: its random numbers, how many images it has in total, and which of them are at hand."""

    rng: torch.Generator
    total: int
    here: slice = slice(None)

    @property
    def at_hand(self) -> int:
        """How many of its images are."""
        return len(range(self.total)[self.here])


def make_view(name: str, items: Tensor, preprocessing: Preprocessing, rng: torch.Generator) -> Tensor:
    """One view of a batch: (B, H, W, 3) uint8 to (B, 3, S, S) float, or (B, d) features unchanged."""
    return make_views(name, items, preprocessing, [Draw(rng, len(items))])


def make_views(name: str, items: Tensor, preprocessing: Preprocessing, draws: Sequence[Draw]) -> Tensor:
    """The same for several batches at once, which lie one after the other in ``items``.

    Each is drawn for by itself, and where only some of its images are at hand still for all of them, so that each
    image looks as it would in a batch alone with all the others.
    """
    if items.dim() == 2:
        return items
    if name == "test":
        return _normalise(central_pixels(items, preprocessing), preprocessing)
    if name not in ("weak", "strong"):
        raise ValueError(f"unknown view '{name}'; there are weak, strong and test")
    boxes = _weak_boxes(items, preprocessing, draws)
    mirrored = (
        _chance(draws, lambda draw: torch.rand(draw.total, generator=draw.rng)) < 0.5 if preprocessing.flip else None
    )
    images = crop(items, boxes, preprocessing.size, mirrored)
    if name == "strong":
        parts = torch.split(images, [draw.at_hand for draw in draws])
        images = torch.cat([_auto_augment(part, draw) for part, draw in zip(parts, draws, strict=True)])
    return _normalise(images, preprocessing)


def central_pixels(items: Tensor, preprocessing: Preprocessing) -> Tensor:
    """The test view (B, 3, S, S) before it is normalised, in 0..255."""
    return crop(items, _test_boxes(items, preprocessing), preprocessing.size)


def _chance(draws: Sequence[Draw], one: Callable[[Draw], Tensor]) -> Tensor:
    """What is drawn for the images at hand, batch by batch."""
    return torch.cat([one(draw)[draw.here] for draw in draws])


def _weak_boxes(items: Tensor, preprocessing: Preprocessing, draws: Sequence[Draw]) -> Tensor:
    """Boxes (top, left, height, width) of training views, one for each image at hand.

    A side that would be longer than the image is cut to it. torchvision's RandomResizedCrop, which the authors use,
    draws again. On square images of 256 pixels this is so for 51 % of the first draws; cut boxes have 85.2 % of the
    image's area on average instead of 83.3 %, and 54 % instead of 6 % are as wide or as high as it (docs/data.md).
    """
    count, (height, width) = len(items), items.shape[1:3]
    whole = np.array([height, width])

    def uniform(low: float, high: float) -> Tensor:
        return _chance(draws, lambda draw: torch.empty(draw.total).uniform_(low, high, generator=draw.rng))

    # Only what is drawn is torch's: for a few numbers numpy's calls are several times as fast.
    if preprocessing.profile == "shot":
        sizes = np.tile([round(height * SHOT_SIDE), round(width * SHOT_SIDE)], (count, 1))
    else:
        # Area and aspect are drawn independently.
        area = height * width * uniform(*AREA).numpy()
        aspect = uniform(*map(math.log, ASPECT)).exp().numpy()
        sides = np.rint(np.sqrt(np.stack([area / aspect, area * aspect], 1)))
        sizes = np.minimum(np.maximum(sides, 1), whole).astype(np.int64)
    room = (whole - sizes + 1).astype(np.float32)
    corners = _chance(draws, lambda draw: torch.rand(draw.total, 2, generator=draw.rng)).numpy()
    return torch.from_numpy(np.concatenate([(corners * room).astype(np.int64), sizes], 1))


def _test_boxes(items: Tensor, preprocessing: Preprocessing) -> Tensor:
    return torch.tensor([central_box(items.shape[1], items.shape[2], preprocessing)]).expand(len(items), 4)


def central_box(height: int, width: int, preprocessing: Preprocessing) -> tuple[int, int, int, int]:
    """The part (top, left, height, width) of an image that its test view shows."""
    side = SHOT_SIDE if preprocessing.profile == "shot" else 1.0
    tall, wide = round(height * side), round(width * side)
    return (height - tall) // 2, (width - wide) // 2, tall, wide


def crop(items: Tensor, boxes: Tensor, size: int, mirrored: Tensor | None = None) -> Tensor:
    """Cut a box (top, left, height, width) out of each image and resize it; (B, 3, S, S) in 0..255.

    The images for which ``mirrored`` says so are turned left to right. On the CPU these are torch's uint8 pixels with
    antialiasing; other devices give floats that are near to them, without rounding and antialiasing.
    """
    mirrored = torch.zeros(len(items), dtype=torch.bool) if mirrored is None else mirrored
    if items.device.type != "cpu":
        return _crop_by_grid(items, boxes, size, mirrored)
    if not mirrored.any() and (boxes == boxes[0]).all():  # as in test views; torch resizes one box a call
        return _resize(items, boxes[0].tolist(), size)
    made = []
    for item, box, mirror in zip(items[:, None], boxes.tolist(), mirrored.tolist(), strict=True):
        image = _resize(item, box, size)
        made.append(image.flip(3) if mirror else image)
    return torch.cat(made)


def _resize(items: Tensor, box: Sequence[int], size: int) -> Tensor:
    """One box out of all images."""
    top, left, tall, wide = box
    # A view: the memory stays channels-last, as the network wants it.
    images = items[:, top : top + tall, left : left + wide].permute(0, 3, 1, 2)
    if (tall, wide) == (size, size):
        return images
    return F.interpolate(images, size=(size, size), mode="bilinear", antialias=True)


def _crop_by_grid(items: Tensor, boxes: Tensor, size: int, mirrored: Tensor) -> Tensor:
    """A box for each image in one call."""
    count, height, width, _ = items.shape
    top, left, tall, wide = boxes.to(items.device, torch.float32).unbind(1)
    turned = (1 - 2 * mirrored.float()).to(items.device)  # -1 walks a row backwards
    maps = torch.zeros(count, 2, 3, device=items.device)
    maps[:, 0, 0], maps[:, 0, 2] = turned * wide / width, (2 * left + wide) / width - 1
    maps[:, 1, 1], maps[:, 1, 2] = tall / height, (2 * top + tall) / height - 1
    grid = F.affine_grid(maps, [count, 3, size, size], align_corners=False)
    return F.grid_sample(items.permute(0, 3, 1, 2).float(), grid, padding_mode="border", align_corners=False)


def _auto_augment(images: Tensor, draw: Draw) -> Tensor:
    """AutoAugment draws from torch's global generator, so that is lent to it under a seed of this batch."""
    from kornia.augmentation.auto import AutoAugment

    seed = int(torch.randint(2**31, (1,), generator=draw.rng))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        augment, scaled = AutoAugment("imagenet"), images.float() / 255
        # One call draws one policy, so each image gets a call of its own.
        drawn = [augment.forward_parameters(scaled[:1].shape) for _ in range(draw.total)][draw.here]
        views = [augment(image[None], params=policy) for image, policy in zip(scaled, drawn, strict=True)]
        return torch.cat(views).clamp(0, 1) * 255


def _normalise(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """(x / 255 - mean) / std as one multiplication and one addition; the result is channels-last."""
    count, _, height, width = images.shape
    shift, scale = shift_and_scale(preprocessing)
    # A whole row of pixels is one line of numbers to the processor; with the three channels as the innermost loop it
    # takes several times as long.
    rows = images.permute(0, 2, 3, 1).reshape(count, height, 3 * width).float()
    # `rows` is a new tensor, because uint8 images were converted and float ones were made by the view itself.
    torch.addcmul(shift.repeat(width).to(rows.device), rows, scale.repeat(width).to(rows.device), out=rows)
    return rows.view(count, height, width, 3).permute(0, 3, 1, 2)


@cache
def shift_and_scale(preprocessing: Preprocessing) -> tuple[Tensor, Tensor]:
    """What a pixel in 0..255 is multiplied by, the second, and what is then added, for each channel (3,)."""
    mean, std = torch.tensor(preprocessing.mean), torch.tensor(preprocessing.std)
    return -mean / std, 1 / (255 * std)
