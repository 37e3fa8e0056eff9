"""What runs cost: in seconds for each image and epoch, and in bytes; and what finished runs say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosda.bench.jobs import open_benchmark
from cosda.bench.tasks import NOWHERE, Task
from cosda.errors import CosdaError
from cosda.records.run import Run, read_run
from cosda.run.source import source_config


@dataclass(frozen=True)
class Cost:
    """Seconds and bytes of runs of one kind, as measured."""

    origin: str
    fixed: float = 0.0  # seconds of every run
    epoch: float = 0.0  # of every epoch, whatever its images
    image: float = 0.0  # of every image in an epoch of training
    look: float = 0.0  # of every image that is measured
    stage_bytes: int = 0  # of the model that a stage hands on
    other_bytes: int = 0  # of everything else in the folder

    def of_run(self, task: Task) -> float:
        """Seconds of what is left of a run, once it has its source model."""
        plan, domains = task.plan, open_benchmark(task.job.data).domains
        tests = {name: len(domains[name].test) for name in plan.domains}
        # The model of the source is measured on all domains, those of the targets also with other statistics.
        seconds = self.fixed + self.look * sum(tests.values()) * (2 * len(plan.domains) - 1)
        for target in plan.domains[1:]:
            settings, images = plan.section("adapt", target), len(domains[target].train)
            looked = tests[target] + min(settings.validate, images)
            looked += tests[plan.domains[0]] if settings.measure == "source" else 0
            trained = min(images, settings.epoch_images or images)
            seconds += settings.epochs * (self.epoch + self.image * trained + self.look * looked)
        return float(seconds * _share_left(task))

    def of_source(self, task: Task) -> float:
        """Seconds of the training of a source model."""
        settings, domain = task.plan.section("source"), open_benchmark(task.job.data)[task.plan.domains[0]]
        images = len(domain.train) * (1 - settings.holdout)
        return float(
            self.fixed + settings.epochs * (self.epoch + self.image * min(images, settings.epoch_images or images))
        )

    def bytes_of_run(self, task: Task) -> int:
        """Bytes of its run folder: a model for each domain of the chain, and what is the same for all runs."""
        return self.other_bytes + self.stage_bytes * len(task.plan.domains)


def _share_left(task: Task) -> float:
    """Of a run that was interrupted only the epochs that are left cost anything."""
    _, (stage, epoch) = task.reached()
    if not task.epochs or (stage, epoch) == NOWHERE:
        return 1.0
    before = sum(task.plan.section("adapt", target).epochs for target in task.plan.domains[1:stage])
    return float(1 - (before + epoch + 1) / task.epochs)


def kind_of(config: Mapping[str, Any]) -> str:
    """What two runs must have in common for one to say what the other costs."""
    settings = config["settings"]
    facts = (config["method"], config["ablation"], settings["network"], settings["data"])
    return repr((*facts, settings["adapt"]["batch_size"], len(config["classes"]), config["input_width"]))


def source_kind(config: Mapping[str, Any]) -> str:
    """The same for source models."""
    settings = config["settings"]
    facts = (config.get("method"), settings["network"], settings["data"], settings["source"]["batch_size"])
    return repr((*facts, len(config["classes"])))


def kinds(task: Task) -> tuple[str, str]:
    """The kind of a task's run and that of its source model."""
    return kind_of(task.plan.as_json()), source_kind(source_config(task.plan))


def finished_costs(out: Path, threads: int) -> dict[str, Cost]:
    """The cost of each kind of run and source model, from those finished below ``out`` with as many threads."""
    runs: dict[str, list[Run]] = {}
    sources: dict[str, list[Run]] = {}
    for done in sorted((*out.glob("*/done.json"), *out.glob("sources/*/done.json"))):
        try:
            run = read_run(done.parent)
        except CosdaError:  # damaged; the others tell as much
            continue
        if run.environment.get("threads") == threads:
            if run.config["kind"] == "adapt":
                runs.setdefault(kind_of(run.config), []).append(run)
            else:
                sources.setdefault(source_kind(run.config), []).append(run)
    return {kind: _finished_cost(found) for kind, found in (runs | sources).items()}


def _finished_cost(runs: list[Run]) -> Cost:
    """All that happened, spread over the images of training, or over runs where nothing was trained."""
    seconds = sum(seconds_of(run) for run in runs)
    images = sum(record["images"] for run in runs for record in run.of("loss"))
    # The files of a source model have links, but are its own.
    stages = [folder_bytes(path, linked=False) for run in runs for path in run.path.glob("models/*")]
    other = sum(folder_bytes(run.path, run.config["kind"] == "source") for run in runs) - sum(stages)
    return Cost(
        origin=f"{len(runs)} finished",
        fixed=0.0 if images else seconds / len(runs),
        image=seconds / images if images else 0.0,
        stage_bytes=max(stages, default=0),
        other_bytes=other // len(runs),
    )


def seconds_of(run: Run) -> float:
    """Seconds of a finished run after its source model.

    Its timing holds training alone. The times of its files say how long the rest took, unless it was interrupted
    (its environment is then younger than its first model) or copied.
    """
    trained = float(sum({(facts["stage"], facts["epoch"]): facts["seconds"] for facts in run.timing}.values()))
    first, last = run.path / "models" / "stage-0" / "model.json", run.path / "done.json"
    began = first.stat().st_mtime if first.exists() else last.stat().st_mtime
    if (run.path / "environment.json").stat().st_mtime > began:
        return trained
    return max(trained, last.stat().st_mtime - began)


def folder_bytes(path: Path, linked: bool = True) -> int:
    """Bytes of all files at or below a path; those that are links to files elsewhere count only with ``linked``."""
    found = [file.stat() for file in path.rglob("*") if file.is_file()]
    return sum(facts.st_size for facts in found if linked or facts.st_nlink == 1)
