"""Weak views of a packed batch on one core, against Pillow for each image."""

from __future__ import annotations

import io

import numpy as np
import torch

from benchmarks.facts import Fact
from benchmarks.images import make_jpegs
from benchmarks.straightforward import read_image
from benchmarks.timing import interleaved, threads
from cosda.data.decode import decode
from cosda.data.views import make_view
from cosda.preprocessing import Preprocessing
from cosda.randomness import stream
from cosda.run.memory import keep_freed_memory
from cosda.run.prepare import MARGIN

BATCH = 32


def measure(quick: bool = False) -> list[Fact]:
    """How many times faster packed views are."""
    keep_freed_memory()  # as every run does
    rounds = 2 if quick else 15
    with threads(1):
        return [_compare(size, rounds) for size in ((32,) if quick else (128, 224))]


def _compare(size: int, rounds: int) -> Fact:
    files = make_jpegs(BATCH)
    packed = _pack(files, size)
    preprocessing, rng = Preprocessing(size=size), stream(0)
    candidates = {
        "ours": lambda: make_view("weak", packed, preprocessing, rng),
        "pillow": lambda: torch.stack([read_image(io.BytesIO(data), size, train=True) for data in files]),
    }
    timing = interleaved(candidates, rounds)
    return Fact.of(f"weak views at {size} px", timing.ratio("pillow", "ours"), least=4, seconds=timing.medians)


def _pack(files: list[bytes], size: int) -> torch.Tensor:
    return torch.from_numpy(np.stack([decode(data, round(size * MARGIN)) for data in files]))
