"""How far a benchmark has come: what is done, running, failed and left, and how long it may still take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cosda.bench.estimate import Costs, images_left
from cosda.bench.tasks import Task


class Onlooker:
    """Receives what happens; every method does nothing unless overridden."""

    def begin(self, board: Board) -> None:
        """The work begins."""

    def happened(self, board: Board, event: str, task: Task, reason: str = "") -> None:
        """A run has started, finished, failed, or lost its process (died)."""

    def note(self, text: str) -> None:
        """Something a person should know."""

    def end(self) -> None:
        """The work is over, or was broken off."""


class Board:
    """The state of all runs of one command."""

    def __init__(self, tasks: Sequence[Task], onlooker: Onlooker) -> None:
        states = {task: task.state for task in tasks}
        self.waiting = [task for task, state in states.items() if state != "done"]
        self.done = len(states) - len(self.waiting)
        self.running: dict[Task, None] = {}  # in the order in which they began
        self.failed: dict[Task, str] = {}
        self._onlooker = onlooker
        self._costs = Costs()  # of the runs that this command has finished
        self._left = {task: images_left(task) for task in self.waiting}
        self._noted: set[str] = set()

    def start(self, task: Task) -> None:
        """A run was given to a worker."""
        self.waiting.remove(task)
        self.running[task] = None
        self._onlooker.happened(self, "started", task)

    def finish(self, task: Task) -> None:
        """A run came to its end."""
        del self.running[task]
        self.done += 1
        self._costs.learn(task.path)
        self._costs.learn(task.source)
        self._onlooker.happened(self, "finished", task)

    def fail(self, task: Task, reason: str) -> None:
        """A run cannot be done."""
        del self.running[task]
        self.failed[task] = reason
        self._onlooker.happened(self, "failed", task, reason)

    def put_back(self, task: Task, reason: str) -> None:
        """A run lost its process and goes on later, from its last epoch."""
        del self.running[task]
        self.waiting.insert(0, task)
        self._left[task] = images_left(task)
        self._onlooker.happened(self, "died", task, reason)

    def note(self, text: str) -> None:
        """Pass on what a run had to say, once."""
        if text not in self._noted:
            self._noted.add(text)
            self._onlooker.note(text)

    @property
    def counts(self) -> dict[str, int]:
        """The four numbers that are always shown."""
        return {"done": self.done, "running": len(self.running), "failed": len(self.failed), "left": len(self.waiting)}

    def seconds_left(self) -> float | None:
        """Until all is done, as far as the runs that this command has finished tell; None before the first of them."""
        if not self._costs:
            return None
        running = {task: images_left(task) for task in list(self.running)}
        waiting = {task: self._left[task] for task in list(self.waiting)}
        return self._costs.total(running | waiting, max(1, len(running)))

    def facts(self) -> dict[str, Any]:
        """The counts and the time left, for a line of JSON."""
        seconds = self.seconds_left()
        return {**self.counts, "seconds_left": None if seconds is None else round(seconds, 1)}
