"""Weak views of a packed batch against decoding and transforming each picture with Pillow, on one core."""

from __future__ import annotations

import io

import numpy as np
import torch

from benchmarks.facts import Fact
from benchmarks.pictures import make_jpegs
from benchmarks.straightforward import read_picture
from benchmarks.timing import interleaved, threads
from cosda.data.pictures import decode
from cosda.data.views import make_view
from cosda.preprocessing import Preprocessing
from cosda.randomness import stream
from cosda.run.prepare import MARGIN

BATCH = 32


def measure(quick: bool = False) -> list[Fact]:
    """How many times faster packed views are."""
    with threads(1):
        return [_compare(size, 2 if quick else 15) for size in ((32,) if quick else (128, 224))]


def _compare(size: int, rounds: int) -> Fact:
    files = make_jpegs(BATCH)
    packed = torch.from_numpy(np.stack([decode(data, round(size * MARGIN)) for data in files]))
    how, rng = Preprocessing(size=size), stream(0)
    candidates = {
        "ours": lambda: make_view("weak", packed, how, rng),
        "pillow": lambda: torch.stack([read_picture(io.BytesIO(data), size, train=True) for data in files]),
    }
    timing = interleaved(candidates, rounds)
    return Fact.of(f"weak views at {size} px", timing.ratio("pillow", "ours"), least=4, seconds=timing.medians)
