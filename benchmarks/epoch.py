"""A whole epoch on packed images against its steps alone, on views that are ready: does the loader hide?"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from benchmarks.facts import Fact
from benchmarks.images import write_jpegs
from benchmarks.step import CASES, Case
from benchmarks.timing import interleaved
from cosda.config.schema import AdaptSettings
from cosda.data.cache import pack
from cosda.data.inputs import load_domain
from cosda.data.loader import Loader, open_loader
from cosda.methods.cosda import CoSDA
from cosda.preprocessing import Preprocessing
from cosda.run.memory import keep_freed_memory
from cosda.run.prepare import MARGIN
from cosda.run.train import Training


def measure(quick: bool = False) -> list[Fact]:
    """Time of an epoch, from reading to the meeting of teacher and student, through that of its steps."""
    keep_freed_memory()  # as every run does
    if quick:
        return _compare(CASES[1], steps=2, rounds=2)
    return _compare(CASES[0], steps=8, rounds=16) + _compare(CASES[1], steps=32, rounds=120)


def _compare(case: Case, steps: int, rounds: int) -> list[Fact]:
    with tempfile.TemporaryDirectory(prefix="cosda-benchmark-") as folder:
        loader = _packed(Path(folder), case, steps * case.batch)
        how = AdaptSettings(epochs=1, batch_size=case.batch)
        training = Training(CoSDA(), case.network(), loader, how, 0, 1, "target")
        training._train_epoch()  # so that the method is in the middle of its work when its steps are asked for alone
        ready = list(loader.epoch(1, 0))

        def alone() -> None:
            for batch in ready:
                training._update(training.method.step(batch))

        def views() -> None:
            for _ in loader.epoch(1, 0):
                pass

        # The same steps a second time: what their ratio differs from 1 by is the noise of all the others.
        ways = {"epoch": training._train_epoch, "steps": alone, "views": views, "again": alone}
        timing = interleaved(ways, rounds)
    name = f"epoch of {steps} steps, {case.name}"
    return [
        Fact.of(name, timing.ratio("epoch", "steps"), most=1.05, seconds=timing.medians),
        Fact.of(f"reading and views alone against {steps} steps, {case.name}", timing.ratio("views", "steps")),
        Fact.of(f"{steps} steps against the same steps, {case.name}", timing.ratio("again", "steps")),
    ]


def _packed(folder: Path, case: Case, count: int) -> Loader:
    """JPEG files, packed as a run packs them."""
    domain = load_domain(write_jpegs(folder / "images", count, 2 * case.side))
    packed = pack(domain, round(case.side * MARGIN), folder / "cache").domain
    how = Preprocessing(size=case.side)
    return open_loader(packed, "train", how, torch.device("cpu"), case.batch)
