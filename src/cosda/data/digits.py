"""The embedded benchmark: ten digits, 32 x 32 pixels, four domains with real shift between them, no download.

    print     grey digits on plain grey paper, dark on light or light on dark, in the typefaces matplotlib ships
    colour    the same typefaces in any colour on coloured stripes, gradients and blobs
    outline   only the contours of the digits, light on dark, under noise and blur
    hand      1,797 digits that 43 people wrote by hand (scikit-learn's copy of the UCI test set)

Deterministic for given versions of Pillow and matplotlib, and made in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from cosda.data.domain import Benchmark, Domain

SIDE = 32
SCALE = 4  # glyphs are drawn four times as large and then reduced, which smooths their edges
TRAIN, TEST = 1200, 300

FACES = (
    "DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSans-Oblique.ttf", "DejaVuSansMono.ttf",
    "DejaVuSansMono-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf", "DejaVuSerif-Italic.ttf",
    "STIXGeneral.ttf", "STIXGeneralBol.ttf", "STIXGeneralItalic.ttf", "cmr10.ttf", "cmss10.ttf", "cmtt10.ttf",
)  # fmt: skip

Pixels = NDArray[np.float64]  # (32, 32, 3) or (32, 32), values 0..1
Random = np.random.Generator


@lru_cache(maxsize=1)
def load() -> Benchmark:
    """Make all four domains; the split into training and test images is part of the benchmark."""
    domains = [
        _rendered("print", _print, seed=1),
        _rendered("colour", _colour, seed=2),
        _rendered("outline", _outline, seed=3),
        _hand(),
    ]
    classes = tuple(str(digit) for digit in range(10))
    return Benchmark("digits", {d.name: d for d in domains}, classes, protocol="inductive")


def _rendered(name: str, draw: Callable[[int, Random], Pixels], seed: int) -> Domain:
    rng = np.random.default_rng(seed)
    labels = np.arange(TRAIN + TEST, dtype=np.int64) % 10
    pixels = np.stack([draw(int(label), rng) for label in labels])
    images = np.round(pixels.clip(0, 1) * 255).astype(np.uint8)
    order = np.arange(TRAIN + TEST, dtype=np.int64)
    return Domain(name, images, labels, train=order[:TRAIN], test=order[TRAIN:])


def _hand() -> Domain:
    from sklearn.datasets import load_digits

    grey, labels = load_digits(return_X_y=True)
    small = np.round(grey.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    large = [np.asarray(Image.fromarray(p).resize((24, 24), Image.Resampling.BICUBIC)) for p in small]
    framed = np.pad(np.stack(large), ((0, 0), (4, 4), (4, 4)))
    images = np.repeat(framed[..., None], 3, axis=3)
    order = np.random.default_rng(4).permutation(len(images)).astype(np.int64)
    return Domain("hand", images, labels.astype(np.int64), np.sort(order[:TRAIN]), np.sort(order[TRAIN:]))


def _print(digit: int, rng: Random) -> Pixels:
    dark, light = rng.uniform(0, 0.35), rng.uniform(0.65, 1)
    ink, paper = (dark, light) if rng.integers(2) else (light, dark)
    grey = paper + (ink - paper) * _glyph(digit, rng)
    return _grey(grey + rng.normal(0, 0.02, grey.shape))


def _colour(digit: int, rng: Random) -> Pixels:
    mask = _glyph(digit, rng)[..., None]
    ground = _texture(rng)
    ink = rng.uniform(0, 1, 3)
    # The ink keeps a distance from the mean colour of the ground, so that a person can read the digit.
    while np.abs(ink - ground.mean((0, 1))).max() < 0.5:
        ink = rng.uniform(0, 1, 3)
    return ground * (1 - mask) + ink * mask + rng.normal(0, 0.03, ground.shape)


def _outline(digit: int, rng: Random) -> Pixels:
    ground, line = rng.uniform(0, 0.3), rng.uniform(0.6, 1)
    grey = ground + (line - ground) * _glyph(digit, rng, outline=True)
    return _grey(grey + rng.normal(0, rng.uniform(0.02, 0.1), grey.shape))


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


def _glyph(digit: int, rng: Random, outline: bool = False) -> Pixels:
    """Coverage (32, 32) of a digit in a random typeface, size, slope and place."""
    side = SIDE * SCALE
    font = _font(FACES[rng.integers(len(FACES))], int(rng.integers(80, 116)))
    canvas = Image.new("L", (side, side), 0)
    place = tuple(side / 2 + rng.uniform(-8, 8, 2))
    pen = ImageDraw.Draw(canvas)
    if outline:
        width = int(rng.integers(3, 6))
        pen.text(place, str(digit), fill=0, font=font, anchor="mm", stroke_width=width, stroke_fill=255)
        pen.text(place, str(digit), fill=0, font=font, anchor="mm")
    else:
        pen.text(place, str(digit), fill=255, font=font, anchor="mm")
    canvas = canvas.rotate(rng.uniform(-12, 12), Image.Resampling.BILINEAR)
    shear = rng.uniform(-0.2, 0.2)
    canvas = canvas.transform(
        (side, side),
        Image.Transform.AFFINE,
        (1, shear, -shear * side / 2, 0, 1, 0),
        Image.Resampling.BILINEAR,
    )
    small = canvas.resize((SIDE, SIDE), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float64) / 255


@cache
def _font(face: str, size: int) -> ImageFont.FreeTypeFont:
    import matplotlib

    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / face), size)


def _grey(image: Pixels) -> Pixels:
    return np.repeat(image[..., None], 3, axis=2)
