"""Tables on standard output. No torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cosda.metrics import MEASURES
from cosda.records.run import Run

if TYPE_CHECKING:
    from pathlib import Path

    from cosda.api import Check, Evaluation
    from cosda.report.compare.comparison import Comparison
    from cosda.report.model.table import Cell


HEADLINES = {"top1": "accuracy", "per-class": "mean accuracy of the classes"}


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
        title = f"{run.label}: {HEADLINES[run.config['headline']]}, %"
        table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
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
        measured = HEADLINES[section.headline]
        title = f"{section.title}: {measured}, %, after the last stage, epoch chosen by rule '{section.select}'"
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
    text += f"; {len(evaluation.skipped)} images could not be read" if evaluation.skipped else ""
    _console().print(text, markup=False)


def print_source(run: Run, domain: str, model: Path) -> None:
    """How good a source model is on images that it was not trained on, and what to do with it."""
    # In the transductive protocol the test images were trained on, so held-out ones are the better witnesses.
    measured = [*run.of("accuracy", split="test"), *run.of("accuracy", split="holdout")][-1:]
    splits = {"holdout": "held-out", "test": "test"}
    for record in measured:
        images, accuracy = sum(record["images"]), run.accuracy(record)
        print(f"{domain}: accuracy {accuracy:.1%} on {images} {splits[record['split']]} images")
    print(f"model written to {model}")
    print(f"next: cosda adapt {model} NEW_IMAGES --to ADAPTED_MODEL")


def print_check(check: Check) -> None:
    """What labelled images say of an adaptation."""
    before, after = check.before, check.after
    images = sum(after.images)
    print(f"{after.domain}: accuracy {before.top1:.1%} before, {after.top1:.1%} after, on {images} labelled images")


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


def print_json(value: Any) -> None:
    """A result for programs, on standard output."""
    print(json.dumps(value, indent=1, ensure_ascii=False))
