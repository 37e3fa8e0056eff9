"""The embedded benchmark: ten digits, 32 x 32 pixels, four domains with real shift between them, no download.

    print     grey digits on plain grey paper, dark on light or light on dark, in 14 typefaces
    colour    the same typefaces in any colour on coloured stripes, gradients and blobs
    outline   only the contours of the digits, light on dark, under noise and blur
    hand      1,797 digits that 43 people wrote by hand (the UCI test set)

``digits.npz`` beside this file holds the shapes of the digits and the handwriting, drawn once by
``tools/make_digits.py``. Colours, backgrounds and noise would take four times its space, and are made here by numpy
alone. So the pixels do not depend on the fonts and drawing libraries that are installed; a test knows their hash.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from importlib import resources
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cosda.data.domain import Benchmark, Domain, everything

SIDE = 32
TRAIN, TEST = 1200, 300
FACES = 14  # typefaces; their names are in tools/make_digits.py

Pixels = NDArray[np.float64]  # (32, 32, 3) or (32, 32), values 0..1
Random = np.random.Generator


class Pose(NamedTuple):
    """How one digit is drawn, on a canvas of four times the size."""

    face: int
    size: int
    place: tuple[float, float]  # of its middle, from the middle of the canvas
    stroke: int  # width of the contour; 0 is a filled digit
    angle: float  # degrees
    shear: float


Shape = Callable[[int, Pose], Pixels]  # from position and pose of a digit to its coverage (32, 32)


@lru_cache(maxsize=1)
def load() -> Benchmark:
    """All four domains; the split into training and test images is part of the benchmark."""
    with resources.files("cosda").joinpath("data/digits.npz").open("rb") as file, np.load(file) as stored:
        arrays = {name: stored[name] for name in stored.files}
    domains = [rendered(name, _stored(arrays[name])) for name in RENDERED]
    framed = np.pad(arrays["hand"], ((0, 0), (4, 4), (4, 4)))
    images, train = np.repeat(framed[..., None], 3, axis=3), arrays["hand_train"].astype(np.int64)
    test = np.setdiff1d(everything(len(images)), train)
    domains.append(Domain("hand", images, arrays["hand_labels"].astype(np.int64), train, test))
    classes = tuple(str(digit) for digit in range(10))
    return Benchmark("digits", {d.name: d for d in domains}, classes, protocol="inductive")


def _stored(shapes: NDArray[np.uint8]) -> Shape:
    return lambda position, pose: shapes[position] / 255


def rendered(name: str, shape: Shape) -> Domain:
    """One of the three printed domains, from the shapes of its digits."""
    seed, draw = RENDERED[name]
    rng = np.random.default_rng(seed)
    order = everything(TRAIN + TEST)
    pixels = np.stack([draw(rng, partial(shape, position)) for position in order.tolist()])
    images = np.round(pixels.clip(0, 1) * 255).astype(np.uint8)
    return Domain(name, images, order % 10, train=order[:TRAIN], test=order[TRAIN:])


def _print(rng: Random, shape: Callable[[Pose], Pixels]) -> Pixels:
    dark, light = rng.uniform(0, 0.35), rng.uniform(0.65, 1)
    ink, paper = (dark, light) if rng.integers(2) else (light, dark)
    grey = paper + (ink - paper) * shape(_pose(rng))
    return _grey(grey + rng.normal(0, 0.02, grey.shape))


def _colour(rng: Random, shape: Callable[[Pose], Pixels]) -> Pixels:
    mask = shape(_pose(rng))[..., None]
    ground = _texture(rng)
    ink = rng.uniform(0, 1, 3)
    # The ink keeps a distance from the mean colour of the ground, so that a person can read the digit.
    while np.abs(ink - ground.mean((0, 1))).max() < 0.5:
        ink = rng.uniform(0, 1, 3)
    return ground * (1 - mask) + ink * mask + rng.normal(0, 0.03, ground.shape)


def _outline(rng: Random, shape: Callable[[Pose], Pixels]) -> Pixels:
    ground, line = rng.uniform(0, 0.3), rng.uniform(0.6, 1)
    grey = ground + (line - ground) * shape(_pose(rng, outline=True))
    return _grey(grey + rng.normal(0, rng.uniform(0.02, 0.1), grey.shape))


# name -> seed, and what draws an image; the seed of `hand`, which is not drawn, was 4
RENDERED = {"print": (1, _print), "colour": (2, _colour), "outline": (3, _outline)}


def _pose(rng: Random, outline: bool = False) -> Pose:
    """Drawn here although the shapes are stored, because the numbers that follow it decide colours and noise."""
    face, size = int(rng.integers(FACES)), int(rng.integers(80, 116))
    right, down = rng.uniform(-8, 8, 2)
    stroke = int(rng.integers(3, 6)) if outline else 0
    return Pose(face, size, (right, down), stroke, rng.uniform(-12, 12), rng.uniform(-0.2, 0.2))


def _texture(rng: Random) -> Pixels:
    """Two colours blended along stripes, a gradient or blobs."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    kind, angle = rng.integers(3), rng.uniform(0, np.pi)
    along = x * np.cos(angle) + y * np.sin(angle)
    if kind == 0:
        blend = 0.5 + 0.5 * np.sin(2 * np.pi * rng.uniform(2, 5) * along + rng.uniform(0, 6))
    elif kind == 1:
        blend = (along - along.min()) / (along.max() - along.min())
    else:
        coarse = rng.uniform(0, 1, (5, 5))
        blend = np.kron(coarse, np.ones((7, 7)))[:SIDE, :SIDE]
    first, second = rng.uniform(0, 1, 3), rng.uniform(0, 1, 3)
    second = first + 0.35 * (second - first)
    textured: Pixels = first + (second - first) * blend[..., None]
    return textured


def _grey(image: Pixels) -> Pixels:
    return np.repeat(image[..., None], 3, axis=2)
