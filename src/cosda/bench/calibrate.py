"""What a run costs, measured by a short real run on made-up images.

The short run has the method, the network and the settings of the real one, two domains of one batch each and a few
epochs. Its watcher takes the times at which things happen; everything scales with images and epochs from there.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from cosda.bench.cost import Cost, folder_bytes
from cosda.config.resolve import Plan
from cosda.data.decode import Unreadable, read
from cosda.data.domain import Domain
from cosda.data.loader import Loader
from cosda.models.artifact import Model
from cosda.models.bn_folding import evaluating
from cosda.models.network import to_device
from cosda.records.run import Run
from cosda.run.chain import execute
from cosda.run.prepare import MARGIN, Machine, prepare
from cosda.run.source import new_model, source_model, source_name, trained_part
from cosda.watch import Watcher

EPOCHS = 5  # the shortest is taken, since others may be disturbed
FEW = 8  # images, in one epoch, for a network that takes long for them
QUICK = 1.0  # seconds that a step with a full batch may take
WARM = 4.0  # seconds: a shorter run is done twice, because the first of a process also loads libraries
PASSES = 12  # a step costs about so many forward passes of its batch: only decides between `FEW` and the full batch


class Stopwatch(Watcher):
    """Takes the time of everything that a run tells."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.tasks: list[tuple[str, float, float]] = []  # name, begin, end
        self.looks: list[float] = []  # when each model that was handed on had been measured on a domain

    def begin(self, task: str, steps: int, unit: str = "steps") -> None:
        """A task begins."""
        self._open = (task, time.perf_counter())

    def end(self, **facts: Any) -> None:
        """The task is done."""
        self.tasks.append((*self._open, time.perf_counter()))

    def measured(self, stage: int, epoch: int | None, domain: str, accuracy: float) -> None:
        """A domain was measured."""
        if epoch is None:
            self.looks.append(time.perf_counter())

    def of(self, word: str) -> list[tuple[float, float]]:
        """Begin and end of the tasks whose names begin with a word."""
        return [(begin, end) for name, begin, end in self.tasks if name.startswith(word)]


def calibrate(plan: Plan, machine: Machine) -> Cost:
    """What a run with the settings of a plan costs on this machine."""
    with tempfile.TemporaryDirectory(prefix="cosda-calibration-") as folder:
        machine = replace(machine, cache=Path(folder) / "cache")
        small, domains, model = _made_up(plan, machine)
        model = replace(model, origin=model.save(Path(folder) / "model"))  # what stays as it was is linked to
        for attempt in ("first", "second"):
            watch = Stopwatch()
            run = execute(small, domains, Path(folder) / attempt, machine, watch, model)
            total = time.perf_counter() - watch.begun
            if total > WARM:
                break
        count = len(domains[small.domains[0]])
        return _run_cost(run, watch, total, count, judged=min(count, small.section("adapt").validate))


def calibrate_source(plan: Plan, machine: Machine) -> Cost:
    """What the training of the source model of a plan costs on this machine."""
    with tempfile.TemporaryDirectory(prefix="cosda-calibration-") as folder:
        machine = replace(machine, cache=Path(folder) / "cache")
        small, domains, model = _made_up(plan, machine)
        device, count = machine.open(), len(next(iter(domains.values())))
        ready = prepare(domains[small.domains[0]], small, model, device, machine, Watcher()).domain
        for attempt in ("first", "second"):
            watch = Stopwatch()
            source_model(small, ready, model, Path(folder) / attempt, device, watch)
            total = time.perf_counter() - watch.begun
            if total > WARM:
                break
        epochs, between = _epochs(watch, "source ")
        spent = sum(end - begin for begin, end in watch.of("source ")) + between * len(watch.of("source "))
        size = folder_bytes(Path(folder) / attempt / "sources" / source_name(small))
        return Cost("calibration", max(0.0, total - spent), between, epochs / count, other_bytes=size)


def _run_cost(run: Run, watch: Stopwatch, total: float, count: int, judged: int) -> Cost:
    """Take a short run apart: ``count`` images in each of its two domains, ``judged`` by validators each epoch."""
    looks = [later - earlier for earlier, later in pairwise(watch.looks)]
    look = min(looks, default=0.0) / count
    train, between = _epochs(watch, f"{run.label} →")
    epochs = len(watch.of(f"{run.label} →"))
    within = sum(sum(r["images"]) for r in run.of("accuracy") if r["epoch"] is not None) + judged * epochs
    after = sum(sum(r["images"]) for r in run.records if "images" in r and r["epoch"] is None)
    epoch = max(0.0, between - look * within / max(1, epochs))
    trained = sum(end - begin for _, begin, end in watch.tasks)
    stages = [folder_bytes(path, linked=False) for path in sorted((run.path / "models").iterdir())]
    return Cost(
        origin="calibration",
        fixed=max(0.0, total - trained - epoch * epochs - look * (within + after)),
        epoch=epoch,
        image=train / count,
        look=look,
        stage_bytes=max(stages),
        other_bytes=folder_bytes(run.path, linked=False) - sum(stages),
    )


def _epochs(watch: Stopwatch, word: str) -> tuple[float, float]:
    """Seconds of an epoch of training, and of what lies between two; the shortest, as any may be disturbed."""
    found = watch.of(word)
    between = [later[0] - earlier[1] for earlier, later in pairwise(found)]
    return min((end - begin for begin, end in found), default=0.0), min(between, default=0.0)


def _made_up(plan: Plan, machine: Machine) -> tuple[Plan, dict[str, Domain], Model]:
    """The plan of a short run, images for it, and the untrained network."""
    model = new_model(plan)
    batch = plan.section("adapt").batch_size
    quick = _seconds_of_look(plan, model, machine) * batch * PASSES < QUICK
    count, epochs = (batch, EPOCHS) if quick else (min(batch, FEW), 1)
    few = {"batch_size": count, "epoch_images": 0}
    changed = {
        "adapt": {**few, "epochs": min(epochs, plan.section("adapt").epochs)},
        "source": {**few, "epochs": epochs, "holdout": 0.0},
    }
    settings = {name: {**part, **changed.get(name, {})} for name, part in plan.settings.items()}
    small = replace(plan, domains=plan.domains[:2], model="calibration", settings=settings, stages={})
    return small, {name: _samples(name, count, plan, model) for name in small.domains}, model


def _samples(name: str, count: int, plan: Plan, model: Model) -> Domain:
    """What the trained part of the network sees: images, or the features of a frozen encoder."""
    rng = np.random.default_rng(len(name))
    everything = np.arange(count, dtype=np.int64)
    items: Any
    if plan.input_width is not None or plan.settings["network"]["freeze_encoder"]:
        width = int(model.network.encoder.width)  # type: ignore[arg-type]
        items = rng.normal(size=(count, width)).astype(np.float32)
    else:
        items = _images(count, model)
    return Domain(name, items, everything % len(plan.classes), everything, everything)


def _images(count: int, model: Model) -> Any:
    side = round(model.preprocessing.size * MARGIN)
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def _seconds_of_look(plan: Plan, model: Model, machine: Machine, count: int = 4) -> float:
    """Seconds of a forward pass for one sample."""
    items: Any = _samples("probe", count, plan, model).items
    return _seconds_of_sweep(trained_part(model.network, plan).for_domain(plan.domains[0]), items, model, machine)


def encoding_seconds(plan: Plan, machine: Machine) -> float:
    """Seconds of a frozen encoder for one image, which it sees once."""
    model = new_model(plan)
    return _seconds_of_sweep(model.network.encoder, _images(FEW, model), model, machine)


def _seconds_of_sweep(module: nn.Module, items: Any, model: Model, machine: Machine) -> float:
    device, seconds = machine.open(), []
    to_device(module, device)
    with evaluating(module) as fast:
        for _ in range(2):
            start = time.perf_counter()
            for batch in Loader(items, np.arange(len(items)), model.preprocessing, device, len(items)).sweep("test"):
                fast(batch.images)
            seconds.append(time.perf_counter() - start)
    return min(seconds) / len(items)


def decoding_seconds(domain: Domain, size: int, most: int = 8) -> float:
    """Seconds for one image, from a few real ones spread over the domain."""
    files: Any = domain.items
    chosen = np.linspace(0, len(files) - 1, min(most, len(files))).astype(int)
    start = time.perf_counter()
    for position in chosen:
        try:
            read(files.path(int(position)), size)
        except Unreadable:
            continue
    return (time.perf_counter() - start) / max(1, len(chosen))
