"""A benchmark from its jobs to its runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from cosda.bench.board import Board, Onlooker
from cosda.bench.jobs import Job
from cosda.bench.local import LocalEngine, local_devices
from cosda.bench.scheduler import PATIENCE, Engine, drive
from cosda.bench.tasks import make_tasks
from cosda.data.cache import default_cache
from cosda.distributed import env
from cosda.errors import CosdaError, nearest
from cosda.records.run import Run, read_run
from cosda.run.machine import Machine

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Resources:
    """Where runs are done, and what each may use. The same for every engine, so that each gives the same bits."""

    engine: str = "local"
    workers: int | None = None  # runs at a time; None is as many as devices and cores allow
    cores: int = 1  # of each run: torch threads, and CPUs of a Ray task
    gpus: float | None = None  # of each run; None is one where there are any
    address: str | None = None  # of a Ray cluster; None starts one on this machine


@dataclass(frozen=True)
class Outcome:
    """The runs that came to their end, in the order of the jobs, and why the others did not."""

    runs: list[Run]
    failed: dict[Job, str]


def run_jobs(
    jobs: Sequence[Job],
    out: Path,
    resources: Resources | None = None,
    machine: Machine | None = None,
    onlooker: Onlooker | None = None,
) -> Outcome:
    """Do all runs, or what is left of them; one that fails does not stop the others."""
    if env.place().world > 1:
        raise CosdaError("benchmarks start processes by themselves; do them without torchrun.")
    resources, onlooker, out = resources or Resources(), onlooker or Onlooker(), out.absolute()
    machine = settled(machine or Machine(), resources)
    tasks = make_tasks(jobs, out, machine.cache_folder)
    board = Board(tasks, onlooker)
    if board.waiting:
        out.mkdir(parents=True, exist_ok=True)
        with closing(open_engine(resources, out, machine)) as engine:
            onlooker.begin(board)
            try:
                drive(board, engine)
            finally:
                onlooker.end()
    failed = {task.job: reason for task, reason in board.failed.items()}
    return Outcome([read_run(task.path) for task in tasks if task not in board.failed], failed)


def settled(machine: Machine, resources: Resources) -> Machine:
    """The machine of each run: nothing in it depends on the process that will read it."""
    cache = (machine.cache_folder or default_cache()).absolute()
    return replace(machine, cache=cache, threads=resources.cores, patience=PATIENCE)


def open_engine(resources: Resources, out: Path, machine: Machine) -> Engine:
    """The engine with its processes, or those of a cluster."""
    if resources.engine == "local":
        if resources.address is not None:
            raise CosdaError("--address is that of a Ray cluster; give --engine ray with it.")
        devices = local_devices(machine.device, resources.workers, resources.cores, resources.gpus)
        return LocalEngine(out, machine, devices)
    if resources.engine == "ray":
        from cosda.bench.ray import open_cluster

        return open_cluster(resources.workers, resources.cores, resources.gpus, resources.address, out, machine)
    raise CosdaError(
        f"there is no engine '{resources.engine}'.{nearest(resources.engine, ENGINES)} Known: {', '.join(ENGINES)}."
    )
