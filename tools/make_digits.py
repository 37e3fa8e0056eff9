"""Draw what ``src/cosda/data/digits.npz`` holds: the shapes of the printed digits, and the handwriting.

    python tools/make_digits.py src/cosda/data/digits.npz

Fonts come from matplotlib, handwriting from scikit-learn; Pillow draws and enlarges. Other versions of them give other
pixels and so another benchmark, which is why its result is stored: run it only to make a new one on purpose.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_digits

from cosda.data.digits import FACES, RENDERED, SIDE, TRAIN, Pixels, Pose, rendered

SCALE = 4  # digits are drawn four times as large and then reduced, which smooths their edges
NAMES = (
    "DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSans-Oblique.ttf", "DejaVuSansMono.ttf",
    "DejaVuSansMono-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf", "DejaVuSerif-Italic.ttf",
    "STIXGeneral.ttf", "STIXGeneralBol.ttf", "STIXGeneralItalic.ttf", "cmr10.ttf", "cmss10.ttf", "cmtt10.ttf",
)  # fmt: skip
assert len(NAMES) == FACES


def draw(digit: int, pose: Pose) -> np.ndarray:
    """The coverage (32, 32) of a digit, from 0 to 255."""
    side = SIDE * SCALE
    font = _font(NAMES[pose.face], pose.size)
    canvas = Image.new("L", (side, side), 0)
    place = tuple(side / 2 + np.array(pose.place))
    pen = ImageDraw.Draw(canvas)
    if pose.stroke:
        pen.text(place, str(digit), fill=0, font=font, anchor="mm", stroke_width=pose.stroke, stroke_fill=255)
        pen.text(place, str(digit), fill=0, font=font, anchor="mm")
    else:
        pen.text(place, str(digit), fill=255, font=font, anchor="mm")
    canvas = canvas.rotate(pose.angle, Image.Resampling.BILINEAR)
    sheared = (1, pose.shear, -pose.shear * side / 2, 0, 1, 0)
    canvas = canvas.transform((side, side), Image.Transform.AFFINE, sheared, Image.Resampling.BILINEAR)
    return np.asarray(canvas.resize((SIDE, SIDE), Image.Resampling.BOX))


@cache
def _font(face: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / face), size)


def printed(name: str) -> np.ndarray:
    """The shapes of a printed domain."""
    shapes = []

    def shape(position: int, pose: Pose) -> Pixels:
        shapes.append(draw(position % 10, pose))
        return shapes[-1] / 255

    rendered(name, shape)
    return np.stack(shapes)


def handwriting() -> dict[str, np.ndarray]:
    """Handwritten digits of 24 x 24 pixels with their labels, and the positions of the training images."""
    grey, labels = load_digits(return_X_y=True)
    small = np.round(grey.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    large = [np.asarray(Image.fromarray(image).resize((24, 24), Image.Resampling.BICUBIC)) for image in small]
    train = np.sort(np.random.default_rng(4).permutation(len(labels))[:TRAIN])
    return {"hand": np.stack(large), "hand_labels": labels.astype(np.uint8), "hand_train": train.astype(np.int16)}


if __name__ == "__main__":
    np.savez_compressed(sys.argv[1], **{name: printed(name) for name in RENDERED}, **handwriting())
