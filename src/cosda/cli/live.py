"""How a benchmark is shown while it runs: one live table on a terminal, one JSON object a line elsewhere."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cosda.bench.board import Onlooker
from cosda.units import duration

if TYPE_CHECKING:
    from cosda.bench.board import Board
    from cosda.bench.tasks import Task


def open_onlooker(quiet: bool) -> Onlooker:
    """Nothing if quiet, a table if standard error is a terminal, lines of JSON otherwise."""
    if quiet:
        return Onlooker()
    return LiveTable() if sys.stderr.isatty() else BenchLines()


class BenchLines(Onlooker):
    """One JSON object on standard error for everything that happens, with the counts and the time left."""

    def begin(self, board: Board) -> None:
        """The work begins."""
        self._say(event="begin", **board.facts())

    def happened(self, board: Board, event: str, task: Task, reason: str = "") -> None:
        """A run has started, finished, failed or died."""
        why = {"reason": reason} if reason else {}
        self._say(event=event, run=str(task.job), folder=task.path.name, **board.facts(), **why)

    def note(self, text: str) -> None:
        """Something a person should know."""
        self._say(event="note", text=text)

    def _say(self, **facts: Any) -> None:
        print(json.dumps(facts, ensure_ascii=False), file=sys.stderr, flush=True)


class LiveTable(Onlooker):
    """Counts, time left, and a line for each running run; what fails is printed above it."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._live: Live | None = None

    def begin(self, board: Board) -> None:
        """Draw the table, anew every second: where a run is, its folder says."""
        self._live = Live(
            get_renderable=lambda: render(board), console=self.console, refresh_per_second=1, transient=True
        )
        self._live.start()

    def happened(self, board: Board, event: str, task: Task, reason: str = "") -> None:
        """Failures and deaths stay on the screen; the rest is in the table."""
        if event == "failed":
            lines = reason.strip().splitlines() or [""]
            # The last line of a traceback names the error.
            self.note(f"failed: {task.job}: {lines[-1] if lines[0].startswith('Traceback') else lines[0]}")
        elif event == "died":
            self.note(f"{task.job}: {reason}; it will go on from its last epoch")

    def note(self, text: str) -> None:
        """Something a person should know."""
        self.console.print(Text(text, style="dim"), soft_wrap=True)

    def end(self) -> None:
        """Take the table away."""
        if self._live is not None:
            self._live.stop()


def render(board: Board) -> Group:
    """The table of this moment."""
    facts, seconds = board.counts, board.seconds_left()
    left = "–" if seconds is None else f"about {duration(seconds)}"
    head = ", ".join(f"{count} {word}" for word, count in facts.items())
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("method", "chain", "seed", "now"):
        table.add_column(name, overflow="fold")
    for task in list(board.running):
        job = task.job
        table.add_row(*map(Text, (task.plan.label, " → ".join(job.chain), str(job.request.seed), task.progress())))
    return Group(Text(f"{head}; time left: {left}"), table)
