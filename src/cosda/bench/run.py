"""A benchmark from its jobs to its runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from cosda.bench import ENGINES
from cosda.bench.board import Board, Onlooker
from cosda.bench.jobs import Job
from cosda.bench.scheduler import Resources, drive
from cosda.bench.tasks import make_tasks
from cosda.distributed import env
from cosda.errors import CosdaError
from cosda.files import check_folder, make_folder, writing
from cosda.records.run import REPAIR, Run, read_any_run
from cosda.run.machine import Machine


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
    """Do all runs, or what is left of them; one that fails does not stop the others.

    Raises:
        CosdaError: the engine is unknown, or cannot be opened with these resources.
    """
    if env.place().world > 1:
        raise CosdaError("benchmarks start processes by themselves; do them without torchrun.")
    resources, onlooker, out = resources or Resources(), onlooker or Onlooker(), out.absolute()
    machine, engine_class = resources.settle(machine or Machine()), ENGINES.find(resources.engine)
    tasks = make_tasks(jobs, out, machine.cache_folder)
    board = Board(tasks, onlooker)
    if board.waiting:
        check_folder(out)
        with writing(out):
            make_folder(out)
        with closing(engine_class.open(resources, out, machine, onlooker.note)) as engine:
            onlooker.begin(board)
            try:
                drive(board, engine)
            finally:
                onlooker.end()
    failed = {task.job: reason for task, reason in board.failed.items()}
    runs: list[Run] = []
    for task in tasks:
        run = None if task in board.failed else read_any_run(task.path)
        if run is not None and run.damage:
            failed[task.job] = f"{run.damage} {REPAIR}"
        elif run is not None:
            runs.append(run)
    return Outcome(runs, failed)
