"""`--dry-run`: what would be done, how long it would take and how much disk it would need."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosda.bench.calibrate import calibrate, calibrate_source, decoding_seconds, encoding_seconds
from cosda.bench.cost import Cost, finished_costs, kinds
from cosda.bench.jobs import Job, open_benchmark
from cosda.bench.local import SPAWN, cores_here
from cosda.bench.run import Resources, open_engine, settled
from cosda.bench.tasks import Task, make_tasks
from cosda.bench.wording import amount, duration
from cosda.data.cache import content_key, pack_path
from cosda.data.domain import Files
from cosda.run.prepare import MARGIN, Machine, features_path
from cosda.run.source import new_model
from cosda.watch import Watcher


@dataclass(frozen=True)
class Estimate:
    """The plan of a benchmark with its price."""

    title: str
    rows: list[dict[str, Any]]  # one for each method
    sources: tuple[int, int]  # to train, trained
    slots: int
    seconds: float
    disk: dict[str, int]  # bytes by what they hold
    free: int

    def lines(self) -> list[str]:
        """What a person wants to know, besides the rows."""
        parts = ", ".join(f"{name} {amount(size)}" for name, size in self.disk.items() if size)
        needed = sum(self.disk.values())
        lines = [
            f"source models: {self.sources[0]} to train, {self.sources[1]} trained",
            f"time: about {duration(self.seconds)}, {self.slots} at a time",
            f"disk: about {amount(needed)}{f' ({parts})' if parts else ''}; {amount(self.free)} free",
        ]
        if needed > self.free:
            lines.append("there is not enough disk for it: give another --out or --cache.")
        return lines


def estimate(
    jobs: Sequence[Job], out: Path, resources: Resources, machine: Machine, watcher: Watcher | None = None
) -> Estimate:
    """Resolve all jobs, and measure what one run of each kind costs where no finished run says it."""
    out, machine = out.absolute(), settled(machine, resources)
    tasks = make_tasks(jobs, out, machine.cache)
    left = [task for task in tasks if task.state != "done"]
    untrained = list({task.source: task for task in left if not task.source_is_ready}.values())
    costs, start = _costs(left, untrained, out, resources, machine, watcher or Watcher())
    seconds = {task: costs[kinds(task)[0]].of_run(task) for task in left}
    training = {task: costs[kinds(task)[1]].of_source(task) for task in untrained}
    packs, decoding = _packs(left, machine)
    features, encoding = _features(left, machine)
    slots = _slots(resources, out, machine)
    work = sum(seconds.values()) + sum(training.values()) + encoding
    longest = max((seconds[task] + training.get(task, 0.0) for task in left), default=0.0)
    models = {task.source for task in tasks}
    return Estimate(
        title=_title(jobs, tasks),
        rows=_rows(tasks, seconds, costs),
        sources=(len(untrained), sum((path / "done.json").exists() for path in models)),
        slots=slots,
        seconds=start + decoding + max(longest, work / slots),
        disk={
            "runs": sum(costs[kinds(task)[0]].bytes_of_run(task) for task in left),
            "source models": sum(costs[kinds(task)[1]].other_bytes for task in untrained),
            "packed images": sum(packs.values()),
            "features": sum(features.values()),
        },
        free=shutil.disk_usage(next(path for path in (out, *out.parents) if path.exists())).free,
    )


def _costs(
    left: Sequence[Task],
    untrained: Sequence[Task],
    out: Path,
    resources: Resources,
    machine: Machine,
    watcher: Watcher,
) -> tuple[dict[str, Cost], float]:
    """What each kind of run and source model costs, and the seconds before a worker can begin."""
    costs = finished_costs(out, resources.cores)
    if not left:
        return costs, 0.0
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:  # a process like those that would do the runs
        begun = time.perf_counter()
        pool.submit(_open, machine, sorted({task.job.data for task in left})).result()
        start = time.perf_counter() - begun
        wanted = {kinds(task)[0]: (calibrate, task) for task in left}
        wanted |= {kinds(task)[1]: (calibrate_source, task) for task in untrained}
        unknown = {kind: how for kind, how in wanted.items() if kind not in costs}
        watcher.begin("measuring what runs cost", len(unknown), "kinds of run")
        for kind, (measure, task) in unknown.items():
            costs[kind] = pool.submit(measure, task.plan, machine).result()
            watcher.advance()
        watcher.end()
    return costs, start


def _open(machine: Machine, data: Iterable[str]) -> None:
    """What a worker does before its first run."""
    machine.open()
    for name in data:
        open_benchmark(name)


def _slots(resources: Resources, out: Path, machine: Machine) -> int:
    """Runs at a time."""
    if resources.engine == "ray" and resources.address is None:  # the cluster that would be started here
        return resources.workers or max(1, cores_here() // resources.cores)
    if resources.engine == "ray":
        out.mkdir(parents=True, exist_ok=True)  # to see whether all nodes see it
    with closing(open_engine(resources, out, machine)) as engine:
        return max(1, engine.free())


def _packs(left: Sequence[Task], machine: Machine) -> tuple[dict[Path, int], float]:
    """Bytes of the packs that are to be made, and the seconds for it; all cores decode together."""
    packs: dict[Path, int] = {}
    seconds = 0.0
    for task in _networks(left) if machine.pack else ():
        size = round(new_model(task.plan).preprocessing.size * MARGIN)
        for domain in _domains(left, task):
            if isinstance(domain.items, Files):
                path = pack_path(domain, size, machine.cache)
                if path not in packs and not path.exists():
                    packs[path] = len(domain) * size * size * 3
                    seconds += len(domain) * decoding_seconds(domain, size) / cores_here()
    return packs, seconds


def _features(left: Sequence[Task], machine: Machine) -> tuple[dict[Path, int], float]:
    """Bytes of the features that frozen encoders are to compute, and the seconds for it."""
    features: dict[Path, int] = {}
    seconds = 0.0
    for task in _networks(left):
        if task.plan.settings["network"]["freeze_encoder"] and task.plan.input_width is None:
            model = new_model(task.plan)
            new = 0
            for domain in _domains(left, task):
                key = content_key(domain, machine.cache)
                path = features_path(key, model.network.encoder, model.preprocessing, machine.cache)
                if path not in features and not path.exists():
                    features[path] = len(domain) * int(model.network.encoder.width) * 4  # type: ignore[arg-type]
                    new += len(domain)
            seconds += new * encoding_seconds(task.plan, machine) if new else 0.0
    return features, seconds


def _networks(left: Sequence[Task]) -> list[Task]:
    """A task for each network: its settings, and the seed, by which one without given weights begins."""
    return list({_network(task): task for task in left}.values())


def _network(task: Task) -> str:
    settings = task.plan.settings
    frozen = settings["network"]["freeze_encoder"]
    return repr((settings["network"], settings["data"], task.plan.seed if frozen else None))


def _domains(left: Sequence[Task], task: Task) -> list[Any]:
    """All domains on which runs with the network of a task will look."""
    alike = [other for other in left if _network(other) == _network(task)]
    found = {(other.job.data, name): other for other in alike for name in other.plan.domains}
    return [open_benchmark(data)[name] for data, name in found]


def _title(jobs: Sequence[Job], tasks: Sequence[Task]) -> str:
    methods = len({(job.method, job.ablation) for job in jobs})
    chains, seeds = len({job.domains for job in jobs}), len({job.seed for job in jobs})
    return f"{tasks[0].plan.benchmark}: {methods} methods × {chains} chains × {seeds} seeds = {len(tasks)} runs"


def _rows(tasks: Sequence[Task], seconds: dict[Task, float], costs: dict[str, Cost]) -> list[dict[str, Any]]:
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(task.plan.label, []).append(task)
    rows = []
    for label, group in groups.items():
        states = Counter(task.state for task in group)
        left = [task for task in group if task in seconds]
        row: dict[str, Any] = {"method": label, "runs": len(group)}
        row |= {state: states[state] for state in ("done", "partial", "missing")}
        row["a run"] = duration(sum(seconds[task] for task in left) / len(left)) if left else "–"
        row["measured by"] = ", ".join(sorted({costs[kinds(task)[0]].origin for task in left})) or "–"
        rows.append(row)
    return rows
