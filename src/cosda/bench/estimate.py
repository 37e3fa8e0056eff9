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

from cosda.bench import ENGINES
from cosda.bench.jobs import Job, open_benchmark
from cosda.bench.scheduler import Resources
from cosda.bench.tasks import Task, make_tasks
from cosda.config.plan import Plan
from cosda.data.cache import content_key, pack_path, part_of
from cosda.data.domain import Domain, Undecoded, everything
from cosda.errors import CosdaError
from cosda.models.artifact import Model
from cosda.records.run import Run, read_run
from cosda.records.timing import images_per_second
from cosda.run.chain import execute
from cosda.run.features import features_path
from cosda.run.machine import Machine
from cosda.run.prepare import MARGIN, make_readable, new_model
from cosda.run.source import source_config
from cosda.units import amount, duration
from cosda.watch import Watcher

LOOK = 1 / 3  # a forward pass alone, as a share of a training step on the same images
START_SECONDS, RUN_SECONDS = 5.0, 1.0  # until a worker has loaded torch; of every run besides its images
FEW, QUICK = 8, 0.25  # images of a first calibration; where they take fewer seconds, a second one has a whole batch
FINISHED, CALIBRATED = 2.0, 3.0  # the truth may be so many times more or less


@dataclass(frozen=True)
class Cost:
    """What one run, or the training of one source model, has cost."""

    image: float  # seconds for each image of an epoch; 0 where nothing was trained
    size: float  # bytes for each domain of its chain


def cost_of(run: Run) -> Cost:
    """What a finished run, or a source model, has cost."""
    speed, source = images_per_second(run.timing), run.config["kind"] == "source"
    files = [file.stat() for file in run.path.rglob("*") if file.is_file()]
    size = sum(facts.st_size for facts in files if source or facts.st_nlink == 1)  # runs link to their source model
    return Cost(1 / speed if speed else 0.0, size if source else size / len(run.domains))


def kind_of(config: Mapping[str, Any]) -> str:
    """What two runs, or two source models, must have in common for one to say what the other costs."""
    settings = config["settings"]
    batch = settings["source" if config["kind"] == "source" else "adapt"]["batch_size"]
    label = config.get("label") or config.get("method")  # source models of most methods have neither
    return json.dumps([config["kind"], config["benchmark"], label, settings["network"], settings["data"], batch])


@dataclass(frozen=True)
class Work:
    """Images that are left of a run: to train on and to measure, and to train its source model on."""

    kind: str
    source_kind: str
    trained: int
    looked: int
    source: int


def work_left(task: Task) -> Work:
    """What is left to do of a run, as its folder says."""
    plan, domains = task.plan, open_benchmark(task.job.data).domains
    source = domains[plan.source]
    tests = sum(len(domains[name].test) for name in plan.data.domains)
    (_, source_epoch), (stage, epoch) = task.reached()
    trained, looked = 0, tests if stage < 0 else 0
    for number, target in enumerate(plan.targets, start=1):
        if number >= stage:
            settings, domain = plan.adapt(target), domains[target]
            epochs = settings.epochs - (epoch + 1 if number == stage else 0)
            trained += epochs * min(len(domain.train), settings.epoch_images or len(domain.train))
            looked += epochs * (len(domain.test) + (len(source.test) if settings.measure == "source" else 0))
            looked += 2 * tests  # the model handed on, with both kinds of BatchNorm statistics
    training = plan.source_training
    images = min(len(source.train), training.epoch_images or len(source.train))
    to_train = (training.epochs - (source_epoch + 1)) * images
    return Work(kind_of(plan.as_json()), kind_of(source_config(plan)), trained, looked, to_train)


class Costs(dict[str, list[Cost]]):
    """What is known of each kind of run and of source training."""

    def learn(self, folder: Path, threads: int | None = None) -> None:
        """Take in a finished folder; nothing where it is damaged, or had another number of threads."""
        try:
            run = read_run(folder)
        except CosdaError:
            return
        if run.done is not None and threads in (None, run.environment.get("threads")):
            self.setdefault(kind_of(run.config), []).append(cost_of(run))

    def image(self, kind: str) -> float:
        """Seconds for each image of an epoch: of this kind where it is known, else of all that are."""
        known = self.get(kind) or [cost for costs in self.values() for cost in costs if cost.image] or [Cost(0, 0)]
        return statistics.median(cost.image for cost in known)

    def seconds(self, work: Work) -> float:
        """Seconds of what is left of a run, once it has its source model."""
        trained, looked = self.image(work.kind) * work.trained, self.image(work.source_kind) * LOOK * work.looked
        return RUN_SECONDS + trained + looked

    def total(self, works: Mapping[Task, Work], slots: int) -> float:
        """Seconds until all is done, so many at a time; the first run that needs a source model trains it."""
        each = {task: self.seconds(work) for task, work in works.items()}
        for task in {task.source: task for task in reversed(list(works)) if not task.source_is_ready}.values():
            each[task] += self.image(works[task].source_kind) * works[task].source
        return max(sum(each.values()) / slots, *each.values()) if each else 0.0


@dataclass(frozen=True)
class Calibration:
    """What a short run has cost."""

    run: Cost
    source: Cost | None  # None where a model was given
    prepare: float  # seconds for each image until it can be read: decoded and, for a frozen encoder, encoded


def calibrate(plan: Plan, domains: Mapping[str, Domain], machine: Machine, model: Model | None = None) -> Calibration:
    """Do the run of a plan on a few of its images, in a temporary folder, and take the time."""
    adapt, source = plan.settings["adapt"], plan.settings["source"]
    for count, epochs in ((FEW, 1), (adapt["batch_size"], 2)):  # the first also loads libraries
        changed = {
            "adapt": {**adapt, "epochs": min(epochs, adapt["epochs"])},
            "source": {**source, "epochs": epochs, "holdout": 0.0},
        }
        data = replace(plan.data, domains=plan.data.domains[:2])
        short = replace(plan, data=data, settings={**plan.settings, **changed}, stages={})
        few = {name: _spread(domains[name], count) for name in data.domains if name in domains}
        with tempfile.TemporaryDirectory(prefix="cosda-calibration-") as folder:
            machine = replace(machine, cache=Path(folder) / "cache", log=(), strict=False)
            with machine.open() as device:
                network, begun = model or new_model(short), time.perf_counter()
                for domain in few.values():
                    make_readable(domain, short, network, device, machine, Watcher())
            seconds = (time.perf_counter() - begun) / sum(map(len, few.values()))
            run = cost_of(execute(short, few, Path(folder), machine, model=model))
            trained = [cost_of(read_run(path)) for path in Path(folder).glob("sources/*/")]
        if max(cost.image for cost in (run, *trained)) * FEW > QUICK:
            break
    return Calibration(run, trained[0] if trained else None, seconds)


def _spread(domain: Domain, count: int) -> Domain:
    """Some images of a domain, from its beginning to its end."""
    chosen = domain.train[np.unique(np.linspace(0, len(domain.train) - 1, count).astype(int))]
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
    works = {task: work_left(task) for task in tasks if task.state != "done"}
    costs = Costs()
    for done in sorted((*out.glob("*/done.json"), *out.glob("sources/*/done.json"))):
        costs.learn(done.parent, resources.cores)
    origins = {kind: f"{len(known)} finished" for kind, known in costs.items()}
    images, cache = _unprepared(list(works), machine)
    unknown = {work.kind: task for task, work in works.items() if {work.kind, work.source_kind} - set(costs)}
    if images and not unknown:  # what preparing an image costs is known from no finished run
        unknown = {work.kind: task for task, work in list(works.items())[:1]}
    prepare_seconds = 0.0
    watcher.begin("measuring what runs cost", len(unknown), "kinds of run")
    for task in unknown.values():
        found = calibrate(task.plan, open_benchmark(task.job.data).domains, machine)
        costs.setdefault(works[task].kind, [found.run])
        costs.setdefault(works[task].source_kind, [found.source or found.run])
        prepare_seconds = found.prepare * images
        watcher.advance()
    watcher.end()
    slots = ENGINES.find(resources.engine).slots(resources, out, machine)
    sources = {task.source: task for task in tasks}
    untrained = [works[task] for task in sources.values() if not task.source_is_ready]
    return Estimate(
        title=_title(tasks),
        rows=_rows(tasks, works, costs, origins),
        sources=(len(untrained), len(sources) - len(untrained)),
        slots=slots,
        seconds=START_SECONDS + prepare_seconds + costs.total(works, slots) if works else 0.0,
        factor=CALIBRATED if unknown else FINISHED,
        disk={
            "runs": round(sum(costs[work.kind][0].size * len(task.plan.data.domains) for task, work in works.items())),
            "source models": round(sum(costs[work.source_kind][0].size for work in untrained)),
            "packed images and features": cache,
        },
        free=shutil.disk_usage(next(path for path in (out, *out.parents) if path.exists())).free,
    )


def _unprepared(tasks: Sequence[Task], machine: Machine) -> tuple[int, int]:
    """Images whose packs or features are not in the cache yet, and the bytes of those."""
    if not tasks:
        return 0, 0
    images, size = 0, 0
    plan = tasks[0].plan  # all runs of a benchmark have one network
    with machine.open():  # a new model draws random numbers, which are nobody else's
        model = new_model(plan)
    frozen = plan.network.freeze_encoder
    encoder, side = model.network.encoder, round(model.preprocessing.size * MARGIN)
    for data, name in dict.fromkeys((task.job.data, name) for task in tasks for name in task.plan.data.domains):
        domain, files = open_benchmark(data)[name], {}
        if machine.pack and isinstance(domain.items, Undecoded):
            files[pack_path(domain, side, machine.cache_folder)] = side * side * 3
        if frozen and domain.kind != "features":
            key = content_key(domain, machine.cache_folder)
            path = features_path(key, encoder, model.preprocessing, machine.cache_folder)
            files[path] = 4 * int(encoder.width)  # type: ignore[arg-type]
        missing = sum(bytes_ for path, bytes_ in files.items() if not path.exists())
        images, size = images + (len(domain) if missing else 0), size + len(domain) * missing
    return images, size


def _title(tasks: Sequence[Task]) -> str:
    rows, chains = len({task.plan.label for task in tasks}), len({task.plan.data.domains for task in tasks})
    seeds = len({task.plan.seed for task in tasks})
    return f"{tasks[0].plan.data.benchmark}: {rows} methods × {chains} chains × {seeds} seeds = {len(tasks)} runs"


def _rows(
    tasks: Sequence[Task], works: Mapping[Task, Work], costs: Costs, origins: Mapping[str, str]
) -> list[dict[str, Any]]:
    rows = []
    for label in dict.fromkeys(task.plan.label for task in tasks):
        group = [task for task in tasks if task.plan.label == label]
        left = [works[task] for task in group if task in works]
        states = [task.state for task in group]
        row: dict[str, Any] = {"method": label, "runs": len(group)}
        row |= {state: states.count(state) for state in ("done", "partial", "missing")}
        row["a run"] = duration(statistics.mean(map(costs.seconds, left))) if left else "–"
        row["measured by"] = origins.get(left[0].kind, "calibration") if left else "–"
        rows.append(row)
    return rows
