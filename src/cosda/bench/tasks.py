"""What is known of each run before anything is done: its folder, its source model, and how far it has come."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cosda.bench.jobs import Chain, Job
from cosda.config.plan import Plan
from cosda.config.request import Data
from cosda.config.resolve import resolve
from cosda.errors import CannotWrite
from cosda.files import write_json
from cosda.records.timing import read_timing
from cosda.run.source import source_path

State = Literal["done", "partial", "missing"]
Place = tuple[int, int]  # stage and epoch
NOWHERE: Place = (-1, -1)


@dataclass(frozen=True, eq=False)  # a task is itself alone; its plan cannot be hashed
class Task:
    """A job with its resolved settings, its run folder and that of its source model."""

    job: Job
    plan: Plan
    path: Path
    source: Path

    @property
    def state(self) -> State:
        """How far the run has come, as its folder says."""
        if (self.path / "done.json").exists():
            return "done"
        return "partial" if (self.path / "config.json").exists() else "missing"

    @property
    def source_is_ready(self) -> bool:
        """Whether the source model has been trained."""
        return (self.source / "done.json").exists()

    def reached(self) -> tuple[Place, Place]:
        """The last finished epoch of the source model and of the run: what grows as long as there is progress."""
        return _last_epoch(self.source, 1), _last_epoch(self.path, len(self.plan.data.domains))

    def progress(self) -> str:
        """Where the run is now, in words."""
        (_, source_epoch), (stage, epoch) = self.reached()
        domains = self.plan.data.domains
        if stage < 0 and not self.source_is_ready:
            total = self.plan.source_training.epochs
            return f"source {domains[0]}, epoch {source_epoch + 1}/{total}" if source_epoch >= 0 else "preparing"
        stage = max(stage, 1)
        total = self.plan.adapt(domains[stage]).epochs
        if epoch + 1 == total and stage + 1 < len(domains):
            stage, epoch = stage + 1, -1
            total = self.plan.adapt(domains[stage]).epochs
        return f"{domains[stage]} ({stage}/{len(domains) - 1}), epoch {epoch + 1}/{total}"

    def remember_failure(self, reason: str) -> None:
        """Leave the reason beside what there is of the run; it goes when the run is tried again."""
        if self.path.exists():
            with suppress(CannotWrite):  # perhaps that is why it failed; the others go on
                write_json(self.path / "failed.json", {"reason": reason})

    def forget_failure(self) -> None:
        """The run is tried again."""
        (self.path / "failed.json").unlink(missing_ok=True)


def make_tasks(jobs: Sequence[Job], out: Path, cache: Path | None) -> list[Task]:
    """Resolve all jobs. The images are looked at once for each chain, however many runs go along it."""
    data: dict[tuple[str, Chain], Data] = {}
    tasks = []
    for job in jobs:
        if (job.data, job.chain) not in data:
            data[job.data, job.chain] = Data.of(job.benchmark(), job.chain, cache)
        plan = resolve(data[job.data, job.chain], job.request)
        tasks.append(Task(job, plan, out / plan.name, source_path(plan, out)))
    return tasks


def _last_epoch(folder: Path, stages: int) -> Place:
    """The furthest stage and epoch that has been timed."""
    timed = ((facts["stage"], facts["epoch"]) for facts in read_timing(folder))
    return max((place for place in timed if place[0] < stages), default=NOWHERE)
