"""How long runs take and how much disk they need: for `--dry-run`, and for the time left of a benchmark.

Seconds for each image come from the timing of finished runs of the same kind, or else from a calibration: the same run
on a few of its images. All else is multiplication. It cannot know what else the machine will have to do, so the answer
is an order of magnitude, and is printed as such.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from cosda.bench import ENGINES
from cosda.bench.jobs import Job
from cosda.bench.scheduler import Resources
from cosda.bench.tasks import Task, make_tasks
from cosda.config.plan import Plan
from cosda.data.cache import content_key, pack_path
from cosda.data.domain import Domain, Undecoded, everything, part_of
from cosda.errors import CosdaError
from cosda.models.artifact import Model
from cosda.records.run import read_whole_run
from cosda.records.timing import read_timing, seconds_per_image
from cosda.run.chain import execute
from cosda.run.features import features_path
from cosda.run.machine import Machine
from cosda.run.prepare import MARGIN, make_readable, new_model
from cosda.run.source import source_config
from cosda.units import amount, duration
from cosda.watch import Watcher

FORWARD = 1 / 3  # a forward pass alone, as a share of a training step on the same images
START_SECONDS, RUN_SECONDS = 5.0, 1.0  # until a worker has loaded torch; of every run besides its images
RUN_BYTES = 200_000  # of every run besides its models: records, samples of features
FEW, QUICK = 8, 1.0  # images of a first calibration; where they take fewer seconds, a second one has a whole batch
FINISHED, CALIBRATED = 2.0, 3.0  # the truth may be so many times more or less


def kind_of(config: Mapping[str, Any]) -> str:
    """What two runs, or two source models, must have in common for one to say what the other costs."""
    settings = config["settings"]
    batch = settings["source" if config["kind"] == "source" else "adapt"]["batch_size"]
    label = config.get("label") or config.get("method")  # source models of most methods have neither
    return json.dumps([config["kind"], config["benchmark"], label, settings["network"], settings["data"], batch])


@dataclass(frozen=True)
class ImagesLeft:
    """Images that are left of a run: to train on and to measure, and to train its source model on."""

    kind: str
    source_kind: str
    trained: int
    measured: int
    source: int


def images_left(task: Task) -> ImagesLeft:
    """What is left to do of a run, as its folder says."""
    plan, domains = task.plan, task.job.benchmark().domains
    source = domains[plan.source]
    tests = sum(len(domains[name].test) for name in plan.data.domains)
    (_, source_epoch), (stage, epoch) = task.reached()
    trained, measured = 0, tests if stage < 0 else 0
    for number, target in enumerate(plan.targets, start=1):
        if number >= stage:
            settings, domain = plan.adapt(target), domains[target]
            epochs = settings.epochs - (epoch + 1 if number == stage else 0)
            trained += epochs * min(len(domain.train), settings.epoch_images or len(domain.train))
            measured += epochs * (len(domain.test) + (len(source.test) if settings.measure == "source" else 0))
            measured += 2 * tests  # the model handed on, with both kinds of BatchNorm statistics
    training = plan.source_training
    images = min(len(source.train), training.epoch_images or len(source.train))
    of_source = (training.epochs - (source_epoch + 1)) * images
    return ImagesLeft(kind_of(plan.as_json()), kind_of(source_config(plan)), trained, measured, of_source)


class Costs(dict[str, list[float]]):
    """Seconds for each image of an epoch, of all runs and source trainings that are known, by their kind."""

    def learn(self, folder: Path, threads: int | None = None) -> None:
        """Take in a finished folder; nothing where it is damaged, or had another number of threads."""
        try:
            run = read_whole_run(folder)
            kind = kind_of(run.config)
        except (CosdaError, KeyError):  # a setting that older versions did not have
            return
        if run.done is not None and threads in (None, run.environment.get("threads")):
            self.setdefault(kind, []).append(seconds_per_image(run.timing) or 0.0)

    def image(self, kind: str) -> float:
        """The median of a kind where it is known, else of all that train anything."""
        return statistics.median(self.get(kind) or [one for known in self.values() for one in known if one] or [0.0])

    def seconds(self, images: ImagesLeft) -> float:
        """Seconds of what is left of a run, once it has its source model."""
        training, forward = self.image(images.kind), FORWARD * self.image(images.source_kind)
        return RUN_SECONDS + training * images.trained + forward * images.measured

    def total(self, left: Mapping[Task, ImagesLeft], slots: int) -> float:
        """Seconds until all is done, so many at a time; the first run that needs a source model trains it."""
        each = {task: self.seconds(images) for task, images in left.items()}
        for task in {task.source: task for task in reversed(list(left)) if not task.source_is_ready}.values():
            each[task] += self.image(left[task].source_kind) * left[task].source
        return max(sum(each.values()) / slots, *each.values()) if each else 0.0


@dataclass(frozen=True)
class Calibration:
    """Seconds that a short run took for each image."""

    run: float  # of an epoch; 0 where nothing is trained
    source: float  # of an epoch of its source model; 0 where a model was given
    prepare: float  # until it can be read: decoded and, for a frozen encoder, encoded


def calibrate(plan: Plan, domains: Mapping[str, Domain], machine: Machine, model: Model | None = None) -> Calibration:
    """Do the run of a plan on a few of its images, in a temporary folder, and take the time."""
    adapt, source = plan.settings["adapt"], plan.settings["source"]
    changed = {
        "adapt": {**adapt, "epochs": min(2, adapt["epochs"])},
        "source": {**source, "epochs": 2, "holdout": 0.0},
    }
    data = replace(plan.data, domains=plan.data.domains[:2])
    short = replace(plan, data=data, settings={**plan.settings, **changed}, stages={})
    for count in (FEW, adapt["batch_size"]):  # the first also loads libraries
        few = {name: _spread(domains[name], count) for name in data.domains if name in domains}
        with tempfile.TemporaryDirectory(prefix="cosda-calibration-") as folder:
            machine = replace(machine, cache=Path(folder) / "cache", log=(), strict=False)
            with machine.open() as device:
                network, begun = model or new_model(short), time.perf_counter()
                for domain in few.values():
                    make_readable(domain, short, network, device, machine, Watcher())
            prepared = (time.perf_counter() - begun) / sum(map(len, few.values()))
            run = seconds_per_image(execute(short, few, Path(folder), machine, model=model).timing) or 0.0
            timing = [facts for path in Path(folder).glob("sources/*/") for facts in read_timing(path)]
        found = Calibration(run, seconds_per_image(timing) or 0.0, prepared)
        if max(found.run, found.source) * FEW > QUICK:
            break
    return found


def _spread(domain: Domain, count: int) -> Domain:
    """Some images of a domain, from its beginning to its end."""
    most = len(domain.train)
    chosen = domain.train[np.unique(np.linspace(0, most - 1, min(count, most)).astype(int))]
    items = domain.items
    few = part_of(items, chosen.tolist()) if isinstance(items, Undecoded) else items[chosen]
    labels = None if domain.labels is None else domain.labels[chosen]
    return Domain(domain.name, few, labels, everything(len(chosen)), everything(len(chosen)))


def about(seconds: float, factor: float = CALIBRATED) -> str:
    """A time in words, with how much more or less it may be."""
    return f"about {duration(seconds)} (between {duration(seconds / factor)} and {duration(seconds * factor)})"


@dataclass(frozen=True)
class Estimate:
    """The plan of a benchmark with its price."""

    title: str
    rows: list[dict[str, Any]]  # one for each method
    sources: tuple[int, int]  # to train, trained
    slots: int
    seconds: float
    factor: float  # the truth may be so many times more or less
    disk: dict[str, int]  # bytes by what they hold
    free: int

    def lines(self) -> list[str]:
        """What a person wants to know, besides the rows."""
        parts = ", ".join(f"{name} {amount(size)}" for name, size in self.disk.items() if size)
        needed = sum(self.disk.values())
        lines = [
            f"source models: {self.sources[0]} to train, {self.sources[1]} trained",
            f"time: {about(self.seconds, self.factor)}, {self.slots} at a time" if self.seconds else "time: none",
            f"disk: about {amount(needed)}{f' ({parts})' if parts else ''}; {amount(self.free)} free",
        ]
        if needed > self.free:
            lines.append("there is not enough disk for it: give another --out or --cache.")
        return lines


def estimate(
    jobs: Sequence[Job], out: Path, resources: Resources, machine: Machine, watcher: Watcher | None = None
) -> Estimate:
    """Resolve all jobs, and measure what one run of each kind costs where no finished run says it."""
    out, machine, watcher = out.absolute(), resources.settle(machine), watcher or Watcher()
    tasks = make_tasks(jobs, out, machine.cache_folder)
    left = {task: images_left(task) for task in tasks if task.state != "done"}
    costs = Costs()
    for done in sorted((*out.glob("*/done.json"), *out.glob("sources/*/done.json"))):
        costs.learn(done.parent, resources.cores)
    finished = {kind: len(known) for kind, known in costs.items()}
    disk, unprepared = _disk(list(left), machine)
    unknown = {one.kind: task for task, one in left.items() if {one.kind, one.source_kind} - finished.keys()}
    if unprepared and not unknown:  # no finished run says what preparing an image costs
        unknown = {one.kind: task for task, one in list(left.items())[:1]}
    preparing = 0.0
    watcher.begin("measuring what runs cost", len(unknown), "kinds of run")
    for task in unknown.values():
        found = calibrate(task.plan, task.job.benchmark().domains, machine)
        costs.setdefault(left[task].kind, [found.run])
        costs.setdefault(left[task].source_kind, [found.source])
        preparing = found.prepare * unprepared
        watcher.advance()
    watcher.end()
    trained = len({task.source for task in tasks if task.source_is_ready})
    slots = ENGINES.find(resources.engine).slots(resources, out, machine)
    return Estimate(
        title=_title(tasks),
        rows=_rows(tasks, left, costs, finished),
        sources=(len({task.source for task in left if not task.source_is_ready}), trained),
        slots=slots,
        seconds=START_SECONDS + preparing + costs.total(left, slots) if left else 0.0,
        factor=CALIBRATED if unknown else FINISHED,
        disk=disk,
        free=shutil.disk_usage(next(path for path in (out, *out.parents) if path.exists())).free,
    )


def _disk(tasks: Sequence[Task], machine: Machine) -> tuple[dict[str, int], int]:
    """Bytes that runs, source models and the cache will take, and how many images are not in the cache yet."""
    if not tasks:
        return {}, 0
    plan = tasks[0].plan  # all runs of a benchmark have one network
    with machine.open():  # a new model draws random numbers, which are nobody else's
        model = new_model(plan)
    encoder, side, frozen = model.network.encoder, round(model.preprocessing.size * MARGIN), plan.network.freeze_encoder
    whole, kept = _bytes(model.network), _bytes(encoder) if frozen else 0  # runs link to what stays as it was
    disk = {
        "runs": sum(RUN_BYTES + len(task.plan.targets) * (whole - kept) for task in tasks),
        "source models": whole * len({task.source for task in tasks if not task.source_is_ready}),
        "packed images": 0,
        "features": 0,
    }
    images = 0
    domains = {(task.job.data, name): task.job.benchmark()[name] for task in tasks for name in task.plan.data.domains}
    for domain in domains.values():
        new = {}
        packed = machine.pack and isinstance(domain.items, Undecoded)
        if packed and not pack_path(domain, side, machine.cache_folder).exists():
            new["packed images"] = side * side * 3
        if frozen and domain.kind != "features":
            key = content_key(domain, machine.cache_folder)
            if not features_path(key, encoder, model.preprocessing, machine.cache_folder).exists():
                new["features"] = 4 * int(encoder.width)  # type: ignore[arg-type]
        for what, size in new.items():
            disk[what] += size * len(domain)
        images += len(domain) if new else 0
    return disk, images


def _bytes(module: nn.Module) -> int:
    return sum(value.nbytes for value in module.state_dict().values())


def _title(tasks: Sequence[Task]) -> str:
    rows, chains = len({task.plan.label for task in tasks}), len({task.plan.data.domains for task in tasks})
    seeds = len({task.plan.seed for task in tasks})
    return f"{tasks[0].plan.data.benchmark}: {rows} methods × {chains} chains × {seeds} seeds = {len(tasks)} runs"


def _rows(
    tasks: Sequence[Task], left: Mapping[Task, ImagesLeft], costs: Costs, finished: Mapping[str, int]
) -> list[dict[str, Any]]:
    rows = []
    for label in dict.fromkeys(task.plan.label for task in tasks):
        group = [task for task in tasks if task.plan.label == label]
        states, to_do = [task.state for task in group], [left[task] for task in group if task in left]
        row: dict[str, Any] = {"method": label, "runs": len(group)}
        row |= {state: states.count(state) for state in ("done", "partial", "missing")}
        row |= {"a run": "–", "measured by": "–"}
        if to_do:
            count = finished.get(to_do[0].kind)
            row["a run"] = duration(statistics.mean(map(costs.seconds, to_do)))
            row["measured by"] = f"{count} finished" if count else "calibration"
        rows.append(row)
    return rows
