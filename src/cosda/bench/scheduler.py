"""What all engines share: which run comes next, and what happens when one ends, fails or loses its process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:  # these load torch
    from cosda.bench.board import Board
    from cosda.bench.tasks import Task
    from cosda.bench.worker import Answer
    from cosda.run.machine import Machine

DEATHS = 3  # of a run at one place; a run that gets further between them may die more often
PATIENCE = 300.0  # seconds: the process of a dead node, or of a killed command, may hold its folder for some more
POLL = 0.5  # seconds between two looks at whether a source model is ready

Say = Callable[[str], None]


@dataclass(frozen=True)
class Resources:
    """Where runs are done, and what each may use. The same for every engine, so that each gives the same bits."""

    engine: str = "local"  # a name of cosda.bench.ENGINES
    workers: int | None = None  # runs at a time; None is as many as devices and cores allow
    cores: int = 1  # of each run: torch threads, and CPUs of a Ray task
    gpus: float | None = None  # of each run; None is one where there are any
    address: str | None = None  # of a Ray cluster; None starts one on this machine

    def settle(self, machine: Machine) -> Machine:
        """The machine of each run: nothing in it depends on the process that will read it."""
        from cosda.data.entries import default_cache

        cache = (machine.cache_folder or default_cache()).absolute()
        return replace(machine, cache=cache, threads=self.cores, patience=PATIENCE)


@dataclass(frozen=True)
class Ended:
    """A run that has left its process; ``death`` says how that ended before the run did."""

    task: Task
    answer: Answer
    death: str = ""


class Engine:
    """Where runs are done. A subclass with a line in `cosda.bench.ENGINES` can be named by ``--engine``."""

    title: ClassVar[str] = ""

    @classmethod
    def open(cls, resources: Resources, out: Path, machine: Machine, say: Say) -> Self:
        """The engine with its processes. ``say`` receives what a person who waits should know.

        Raises:
            CosdaError: the resources are not for this engine, or it cannot be reached.
        """
        raise NotImplementedError

    @classmethod
    def slots(cls, resources: Resources, out: Path, machine: Machine) -> int:
        """How many runs it would do at a time."""
        with closing(cls.open(resources, out, machine, lambda text: None)) as engine:
            return engine.free()

    def free(self) -> int:
        """How many more runs may be started now."""
        raise NotImplementedError

    def start(self, task: Task) -> None:
        """Begin a run."""
        raise NotImplementedError

    def wait(self, seconds: float) -> list[Ended]:
        """The runs that have ended, after at most so many seconds."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop everything at once; a run may be stopped at any moment."""


def drive(board: Board, engine: Engine) -> None:
    """Do all runs of a board. One that fails does not stop the others."""
    deaths: dict[Task, int] = {}
    reached: dict[Task, object] = {}
    while board.waiting or board.running:
        while engine.free() > 0 and (task := choose(board.waiting, board.running)):
            task.forget_failure()
            reached[task] = task.reached()
            board.start(task)
            engine.start(task)
        for ended in engine.wait(POLL):
            task = ended.task
            for note in ended.answer.notes:
                board.note(note)
            if ended.death:
                moved = task.reached() != reached[task]
                deaths[task] = 1 if moved else deaths.get(task, 0) + 1
                if deaths[task] < DEATHS:
                    board.put_back(task, ended.death)
                    continue
            reason = ended.answer.reason
            if ended.death:
                reason = f"its process died {DEATHS} times at the same epoch, the last time because {ended.death}"
            if reason:
                task.remember_failure(reason)
                board.fail(task, reason)
            else:
                board.finish(task)


def choose(waiting: Iterable[Task], running: Iterable[Task]) -> Task | None:
    """The next run; None where each would only wait for a source model that another run is training.

    Of those that train a source model, one with another source domain than those running is preferred: domains are
    packed in the order of the chain, and two runs on one domain would wait for each other there too.
    """
    training = [task for task in running if not task.source_is_ready]
    models = {task.source for task in training}
    domains = {task.plan.data.domains[0] for task in training}
    second = None
    for task in waiting:
        if task.source_is_ready:
            return task
        if task.source not in models:
            if task.plan.data.domains[0] not in domains:
                return task
            second = second or task
    return second
