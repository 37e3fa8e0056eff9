"""How the command line shows what happens: bars on a terminal, one JSON object a line elsewhere. No torch."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from cosda.metrics import MEASURES
from cosda.records.run import Run
from cosda.watch import Watcher

if TYPE_CHECKING:
    from cosda.api import Evaluation
    from cosda.report.compare.comparison import Comparison
    from cosda.report.model.table import Cell


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """A table with a column for each key."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for key in rows[0]:
        table.add_column(key, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_plain(value)) for value in row.values()))
    _console().print(table)


def print_run(run: Run) -> None:
    """The accuracy matrix of one run and what follows from it."""
    summary = run.summary()
    console = _console()
    if summary["accuracy"] is None:
        console.print(f"{run.label}: nothing to measure, because a domain of the chain has no labels here.")
    else:
        table = Table(title=f"{run.label}: accuracy, %", box=SIMPLE_HEAD, pad_edge=False)
        for name in ("after", *run.domains):
            table.add_column(name)
        for stage, row in zip(run.domains, summary["accuracy"], strict=True):
            table.add_row(stage, *(f"{value:.2%}".rstrip("%") for value in row))
        console.print(table)
        names = [name for name, measure in MEASURES.items() if measure.short and summary[name] is not None]
        numbers = ", ".join(f"{name.replace('_', ' ')} {summary[name]:.2%}" for name in names)
        console.print(f"{numbers} (model of each stage: rule '{summary['select']}')", soft_wrap=True)
    console.print(f"run folder: {run.path}", soft_wrap=True)


def print_tables(runs: Sequence[Run]) -> None:
    """One line per method: mean and spread over seeds of the main numbers, and of the accuracy on each domain."""
    from cosda.report.model.groups import group_runs
    from cosda.report.tables.summary import short_table

    for section in group_runs(runs).sections:
        found = short_table(section)
        title = f"{section.title}: %, after the last stage, epoch chosen by rule '{section.select}'"
        table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
        for name in ("method", *(column.title for column in found.columns)):
            table.add_column(name)
        for row in found.rows:
            table.add_row(Text(row.name), *map(_cell, row.cells))
        _console().print(table)


def print_evaluation(evaluation: Evaluation) -> None:
    """Accuracy of each class and over all images."""
    print_rows(
        [
            {"class": row["class"], "images": row["images"], "correct": row["correct"]}
            for row in evaluation.as_json()["classes"]
        ]
    )
    text = f"{evaluation.domain}: accuracy {evaluation.top1:.2%}, mean over classes {evaluation.per_class:.2%}"
    _console().print(text, markup=False)


def print_comparison(comparison: Comparison) -> None:
    """What differs between two runs, table by table."""
    from cosda.report.compare.text import tables

    console = _console()
    for side, run in (("A", comparison.a), ("B", comparison.b)):
        missing = comparison.missing.get(side.lower())
        text = f"{side}: {run.label}, {run.path}" + (f" – no results: {missing}" if missing else "")
        console.print(text, markup=False, soft_wrap=True)
    for warning in comparison.warnings:
        console.print(f"careful: {warning}", markup=False, soft_wrap=True)
    for title, rows in tables(comparison):
        console.print(f"\n{title}" if rows else f"\n{title}: the same", markup=False)
        if rows:
            print_rows(rows)


def _cell(cell: Cell) -> str:
    if cell.mean is None:
        return "–"
    spread = f" ±{100 * cell.spread:.1f}" if cell.spread is not None else ""
    return f"{100 * cell.mean:.1f}{spread}"


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value)


def _console() -> Console:
    """Where no terminal says how wide it is, lines are as long as they need to be."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def open_watcher(quiet: bool) -> Watcher:
    """Nothing if quiet, bars if standard error is a terminal, lines of JSON otherwise."""
    if quiet:
        return Watcher()
    return Bars() if sys.stderr.isatty() else Lines()


class Lines(Watcher):
    """One JSON object a line on standard error, when something is done and not while it goes on."""

    def note(self, text: str) -> None:
        """Something a person should know."""
        self._say(event="note", text=text)

    def begin(self, task: str, steps: int, unit: str = "steps") -> None:
        """A task begins."""
        self.task, self.steps, self.images, self.start = task, steps, 0, time.perf_counter()

    def advance(self, steps: int = 1, images: int = 0, values: Mapping[str, float] | None = None) -> None:
        """Some steps are done."""
        self.images += images

    def end(self, **facts: Any) -> None:
        """The task is done."""
        seconds = time.perf_counter() - self.start
        rounded = {key: round(value, 5) for key, value in facts.items()}
        self._say(event="done", task=self.task, steps=self.steps, seconds=round(seconds, 2), **rounded)

    def measured(self, stage: int, epoch: int | None, domain: str, accuracy: float) -> None:
        """A model was measured."""
        self._say(event="accuracy", stage=stage, epoch=epoch, domain=domain, accuracy=round(accuracy, 5))

    def _say(self, **facts: Any) -> None:
        print(json.dumps(facts, ensure_ascii=False), file=sys.stderr, flush=True)


class Bars(Watcher):
    """A bar with loss terms, images per second and time left."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.latest: dict[tuple[int, str], str] = {}

    def note(self, text: str) -> None:
        """Something a person should know."""
        self.console.print(text, style="dim", markup=False)

    def begin(self, task: str, steps: int, unit: str = "steps") -> None:
        """A task begins."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[about]}", markup=False),
        )
        self.bar = Progress(*columns, console=self.console, transient=True)
        self.task = self.bar.add_task(task, total=steps, about="")
        self.images, self.start = 0, time.perf_counter()
        self.bar.start()

    def advance(self, steps: int = 1, images: int = 0, values: Mapping[str, float] | None = None) -> None:
        """Some steps are done."""
        self.images += images
        terms = " ".join(f"{name} {value:.3f}" for name, value in (values or {}).items())
        speed = self.images / max(time.perf_counter() - self.start, 1e-9)
        about = f"{speed:.0f} images/s {terms}" if self.images else ""
        self.bar.update(self.task, advance=steps, about=about)

    def end(self, **facts: Any) -> None:
        """The task is done."""
        self.bar.stop()

    def measured(self, stage: int, epoch: int | None, domain: str, accuracy: float) -> None:
        """A model was measured."""
        when = "handed on" if epoch is None else f"epoch {epoch + 1}"
        self.console.print(f"  stage {stage}, {when}: {domain} {accuracy:.1%}", style="dim", markup=False)
