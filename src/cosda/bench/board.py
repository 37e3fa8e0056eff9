"""How far a benchmark has come: what is done, running, failed and left, and how long it may still take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

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

    def __init__(self, tasks: Sequence[Task], onlooker: Onlooker, clock: Callable[[], float] = time.monotonic) -> None:
        states = {task: task.state for task in tasks}
        self.waiting = [task for task, state in states.items() if state != "done"]
        self.done = len(states) - len(self.waiting)
        self.running: dict[Task, float] = {}  # when each began
        self.failed: dict[Task, str] = {}
        self._onlooker, self._clock = onlooker, clock
        self._resumed = {task for task, state in states.items() if state == "partial"}
        self._seconds: list[tuple[str, float]] = []  # method and seconds for each target, of whole runs
        self._noted: set[str] = set()

    def start(self, task: Task) -> None:
        """A run was given to a worker."""
        self.waiting.remove(task)
        self.running[task] = self._clock()
        self._onlooker.happened(self, "started", task)

    def finish(self, task: Task) -> None:
        """A run came to its end."""
        seconds = self._clock() - self.running.pop(task)
        self.done += 1
        if task not in self._resumed:  # only what was measured from beginning to end says how long a run takes
            self._seconds.append((task.job.request.method, seconds / (len(task.job.chain) - 1)))
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
        self._resumed.add(task)
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
        """From the runs that this command has finished: of the same method where there are any, else of all."""
        if not self._seconds:
            return None
        now = self._clock()
        current = [max(0.0, self._expected(task) - (now - began)) for task, began in list(self.running.items())]
        total = sum(current) + sum(self._expected(task) for task in self.waiting)
        return max([total / max(1, len(current)), *current])

    def _expected(self, task: Task) -> float:
        own = [seconds for method, seconds in self._seconds if method == task.job.request.method]
        return statistics.median(own or [seconds for _, seconds in self._seconds]) * (len(task.job.chain) - 1)

    def facts(self) -> dict[str, Any]:
        """The counts and the time left, for a line of JSON."""
        seconds = self.seconds_left()
        return {**self.counts, "seconds_left": None if seconds is None else round(seconds, 1)}
