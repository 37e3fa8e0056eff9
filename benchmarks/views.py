"""Weak views of a packed batch against decoding and transforming each picture with Pillow, on one core."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image

from benchmarks.timing import interleaved
from cosda.data.views import make_view
from cosda.preprocessing import Preprocessing
from cosda.randomness import stream


def measure() -> dict[str, float]:
    """How many times faster packed views are."""
    torch.set_num_threads(1)
    return {f"weak views at {size} px": _ratio(size) for size in (128, 224)}


def _ratio(size: int) -> float:
    stored, count = round(size * 8 / 7), 32
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)
    pictures = [Image.fromarray(c).resize((256, 256), Image.Resampling.BICUBIC) for c in coarse]
    files = []
    for picture in pictures:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    packed = torch.from_numpy(np.stack([np.asarray(p.resize((stored, stored))) for p in pictures]))
    how = Preprocessing(size=size)
    mean, std = np.array(how.mean, np.float32), np.array(how.std, np.float32)

    def by_pillow() -> None:
        out = []
        for number, data in enumerate(files):
            picture = Image.open(io.BytesIO(data)).convert("RGB")
            picture = picture.resize((size, size), Image.Resampling.BILINEAR, box=(8, 8, 240, 232))
            if number % 2:
                picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            out.append(torch.from_numpy((np.asarray(picture, np.float32) / 255 - mean) / std).permute(2, 0, 1))
        torch.stack(out)

    seconds = interleaved({"ours": lambda: make_view("weak", packed, how, stream(0)), "pillow": by_pillow}, 10)
    return seconds["pillow"] / seconds["ours"]
