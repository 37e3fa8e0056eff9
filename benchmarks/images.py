"""Made-up photographs: smooth blobs of colour, which a JPEG holds in about as many bytes as a real image."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image


def make_jpegs(count: int, side: int = 256) -> list[bytes]:
    """So many JPEG files; the same for the same numbers."""
    files = []
    for coarse in np.random.default_rng(0).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8):
        file = io.BytesIO()
        Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def write_jpegs(folder: Path, count: int, side: int = 256) -> Path:
    """A folder of unlabelled images."""
    folder.mkdir(parents=True)
    for number, data in enumerate(make_jpegs(count, side)):
        (folder / f"{number:05}.jpg").write_bytes(data)
    return folder
