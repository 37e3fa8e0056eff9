"""Cost against the number of images: of a step with its loading, of NRC's search, and of memory."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.alone import alone
from benchmarks.facts import Fact
from benchmarks.step import CASES
from benchmarks.timing import interleaved
from cosda.config.schema import AdaptSettings
from cosda.data.loader import Loader
from cosda.methods.cosda import CoSDA
from cosda.parts.bank import nearest
from cosda.preprocessing import Preprocessing
from cosda.run.memory import keep_freed_memory, linux_bytes
from cosda.run.prepare import MARGIN
from cosda.run.train import Training

CASE = CASES[1]  # small ResNet, 32 px
SIZES = (1_000, 10_000, 50_000, 200_000)
STEPS, QUERIES, WIDTH, NEAR = 15, 64, 256, 5


def measure(quick: bool = False) -> list[Fact]:
    """Each cost at the largest number of images through that at a small one."""
    sizes, steps, rounds = ((200, 400, 800), 2, 2) if quick else (SIZES, STEPS, 10)
    with tempfile.TemporaryDirectory(prefix="cosda-benchmark-") as folder:
        files = {count: write_images(Path(folder) / f"{count}.npy", count) for count in sizes}
        return [*_steps(files, steps, rounds), *_search(sizes, rounds), *_memory(files, steps)]


def write_images(path: Path, count: int) -> Path:
    """Made-up images as a pack holds them, written bit by bit."""
    side, rng = round(CASE.side * MARGIN), np.random.default_rng(0)
    items = np.lib.format.open_memmap(path, "w+", np.uint8, (count, side, side, 3))
    for start in range(0, count, 10_000):
        part = items[start : start + 10_000]
        part[:] = rng.integers(0, 256, part.shape, dtype=np.uint8)
    items.flush()
    return path


def training_on(path: Path, steps: int) -> Callable[[], object]:
    """Epochs of a few steps, whose images are drawn from all of them."""
    items: Any = np.load(path, mmap_mode="r")
    few = steps * CASE.batch
    how = AdaptSettings(epochs=1, batch_size=CASE.batch, epoch_images=few)
    loader = Loader(
        items, np.arange(len(items)), Preprocessing(size=CASE.side), torch.device("cpu"), CASE.batch, epoch_images=few
    )
    return Training(CoSDA(), CASE.network(), loader, how, 0, 1, "target")._train_epoch


def _steps(files: dict[int, Path], steps: int, rounds: int) -> list[Fact]:
    timing = interleaved({str(count): training_on(path, steps) for count, path in files.items()}, rounds)
    per_image = {name: value / (steps * CASE.batch) for name, value in timing.medians.items()}
    first = str(min(files))
    return [
        Fact.of(
            f"CoSDA's time for an image, {count:,} images against {int(first):,}",
            timing.ratio(str(count), first),
            most=1.1,  # flat
            seconds=per_image,
        )
        for count in list(files)[1:]
    ]


def _search(sizes: tuple[int, ...], rounds: int) -> list[Fact]:
    rng = torch.Generator().manual_seed(0)
    keys = F.normalize(torch.randn(max(sizes), WIDTH, generator=rng))
    queries = keys[:QUERIES].clone()
    candidates = {str(n): lambda n=n: nearest(queries, keys[:n], NEAR) for n in sizes[1:]}
    timing = interleaved(candidates, rounds)
    first, last = sizes[1], sizes[-1]  # of the fewest, most time goes elsewhere
    each = timing.ratio(str(last), str(first)).times(first / last)
    name = f"NRC's time for a query and a key, {last:,} keys against {first:,}"
    per_query = {key: value / QUERIES for key, value in timing.medians.items()}
    return [Fact.of(name, each, most=1.1, seconds=per_query)]


def _memory(files: dict[int, Path], steps: int) -> list[Fact]:
    """The memory that is the process's own; mapped images are the system's, which drops them when it needs room."""
    if sys.platform != "linux":
        return []
    held = {count: alone(own_memory, path, steps) for count, path in files.items()}
    few, many = min(files), max(files)
    grown = (held[many] - held[few]) / 2**20
    mebibytes = {str(count): value / 2**20 for count, value in held.items()}
    name = f"own memory at {many:,} images beyond that at {few:,} (of {mebibytes[str(few)]:.0f} MiB)"
    return [Fact(name, grown, "MiB", most=0.1 * mebibytes[str(few)], mebibytes=mebibytes)]


def own_memory(path: Path, steps: int) -> int:
    """Bytes of a new process after two short epochs."""
    keep_freed_memory()
    epoch = training_on(path, steps)
    for _ in range(2):
        epoch()
    return linux_bytes("RssAnon")
