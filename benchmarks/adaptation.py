"""A CoSDA adaptation from start to finish, packing included, against the straightforward way."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.alone import in_turn
from benchmarks.facts import Fact
from benchmarks.straightforward import adapt as straightforward
from cosda.config.request import Data, Request
from cosda.config.resolve import resolve
from cosda.data.benchmarks import load
from cosda.data.domain import Domain, Files
from cosda.models.architecture import Architecture
from cosda.models.artifact import Model
from cosda.preprocessing import Preprocessing
from cosda.run.chain import execute
from cosda.run.machine import Machine

# Where Office-31 lies, with a folder for each domain.
DATA = Path(os.environ.get("COSDA_OFFICE31", Path(__file__).parents[2] / "shared" / "data" / "office31"))


@dataclass(frozen=True)
class Case:
    """What is adapted to what; `python -m benchmarks.adaptation` tries a smaller one."""

    encoder: str = "resnet18"
    side: int = 128
    epochs: int = 5
    batch: int = 32
    images: int = 0  # so many of webcam's; 0 is all 795
    rounds: int = 4
    workers: int = os.cpu_count() or 1  # of the straightforward way's DataLoader


def measure(quick: bool = False) -> list[Fact]:
    """Seconds of ours through those of the straightforward way, from an empty cache to the last accuracy."""
    if not DATA.is_dir():
        print(f"  skipped: there is no {DATA}. Set COSDA_OFFICE31 to the folder of Office-31.")
        return []
    return compare(Case("small", 32, 1, 8, 16, 1, 0) if quick else Case())


def compare(case: Case) -> list[Fact]:
    """Both ways, one after the other, in so many rounds."""
    timing = in_turn({"ours": partial(our_way, case), "straightforward": partial(their_way, case)}, case.rounds)
    images = case.images or "all"
    name = f"adaptation to webcam ({images} images), {case.encoder}, {case.side} px, {case.epochs} epochs"
    return [Fact.of(name, timing.ratio("ours", "straightforward"), most=0.5, seconds=timing.medians)]


def our_way(case: Case) -> float:
    """Seconds of an adaptation with an empty cache, measured with labels after each epoch."""
    domain, classes = _webcam(case)
    architecture = Architecture(case.encoder, 256, len(classes))
    torch.manual_seed(0)
    model = Model(architecture.build(), architecture, classes, Preprocessing(size=case.side))
    # Validators, which the straightforward way has not, are switched off.
    request = Request.of("cosda", model=model, epochs=case.epochs, batch_size=case.batch, settings={"validate": 0})
    data = Data("own", ("source", domain.name), classes)
    with tempfile.TemporaryDirectory(prefix="cosda-benchmark-") as folder:
        machine = Machine(cache=Path(folder) / "cache")
        start = time.perf_counter()
        run = execute(resolve(data, request), {domain.name: domain}, Path(folder) / "runs", machine, model=model)
        seconds = time.perf_counter() - start
    measured = [fact for fact in run.records if fact["kind"] in ("accuracy", "alternative")]
    # Before, after each epoch, and at the end with both kinds of statistics, of which one is known from the last epoch.
    assert len(measured) == case.epochs + 3
    return seconds


def their_way(case: Case) -> float:
    """Seconds of the same epochs, batches and measurements as one would write them from the paper."""
    domain, classes = _webcam(case)
    torch.manual_seed(0)
    network = Architecture(case.encoder, 256, len(classes)).build()
    assert isinstance(domain.items, Files)
    assert domain.labels is not None
    files = [domain.items.path(i) for i in range(len(domain))]
    start = time.perf_counter()
    measured = straightforward(network, files, domain.labels.tolist(), case.side, case.epochs, case.batch, case.workers)
    seconds = time.perf_counter() - start
    assert len(measured) == case.epochs + 3
    return seconds


def _webcam(case: Case) -> tuple[Domain, tuple[str, ...]]:
    benchmark = load(DATA)
    domain = benchmark["webcam"]
    assert isinstance(domain.items, Files)
    assert domain.labels is not None
    count = min(case.images or len(domain), len(domain))
    chosen = np.linspace(0, len(domain) - 1, count).astype(np.int64)  # of all classes
    names = tuple(domain.items.names[i] for i in chosen)
    everything = np.arange(count)
    labels = domain.labels[chosen]
    part = replace(domain, items=Files(domain.items.root, names), labels=labels, train=everything, test=everything)
    return part, benchmark.classes


if __name__ == "__main__":
    for fact in compare(Case(epochs=2, images=128, rounds=1)):
        print(fact.case, fact.reached, fact.seconds)
