"""The page of a single run: what it was told, where it ran, and what became of it."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cosda.records.run import Run
from cosda.records.selection import judge
from cosda.report import classes, curves, wording
from cosda.report.gallery import Image, confusion_image, draw, has_lines
from cosda.report.plots import stage_names
from cosda.report.settings import flatten, show
from cosda.report.tables import DAMAGED, Row, Section

Table = tuple[tuple[str, ...], ...]  # texts, row by row; the first row is the head


@dataclass(frozen=True)
class RunPage:
    """All that a report knows of one run."""

    anchor: str
    run: Run
    section: Section
    row: Row
    state: str
    matrix: Table  # accuracy on each domain after each stage, as far as it is measured
    selection: Table  # for each stage the epoch handed on, and what the other rules would have chosen
    speed: Table
    images: tuple[Image, ...]
    notes: tuple[str, ...]

    @property
    def settings(self) -> str:
        """Every setting in a line: its name, its value and where the value comes from."""
        origins = self.run.config.get("origins") or {}
        settings = flatten(self.run.config["settings"])
        return _lines([(key, show(value), str(origins.get(key, ""))) for key, value in settings.items()])

    @property
    def environment(self) -> str:
        """Versions and machine, one in a line."""
        return _lines([(key, show(value)) for key, value in flatten(self.run.environment).items()])


def _lines(texts: Sequence[tuple[str, ...]]) -> str:
    """Columns of text: hundreds of runs as tables would make a page of a hundred thousand elements."""
    cells = [[" ".join(text.split()) for text in line] for line in texts]
    widths = [min(40, max(map(len, column))) for column in zip(*cells, strict=True)]
    lines = ("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(line.rstrip() for line in lines)


def run_pages(sections: Sequence[Section]) -> list[list[list[RunPage]]]:
    """The pages of all runs, by section and row."""
    anchors = _anchors([run for section in sections for row in section.rows for run in row.runs])
    return [
        [[_page(next(anchors), run, section, row) for run in row.runs] for row in section.rows] for section in sections
    ]


def _anchors(runs: Sequence[Run]) -> Iterator[str]:
    """``run-`` and the folder's name without what an address cannot hold; a number where two would be equal."""
    seen: dict[str, int] = {}
    for run in runs:
        anchor = "run-" + re.sub(r"[^A-Za-z0-9.+_-]+", "-", run.path.name)
        seen[anchor] = seen.get(anchor, 0) + 1
        yield anchor if seen[anchor] == 1 else f"{anchor}~{seen[anchor]}"


def _page(anchor: str, run: Run, section: Section, row: Row) -> RunPage:
    confusions, notes = _confusions(run)
    drawn = [
        draw("Accuracy", curves.accuracy_curves, run),
        draw("Losses", curves.loss_curves, run),
        draw("Label-free scores, each from its lowest (0) to its highest value (1)", curves.score_curves, run),
        draw("Seconds of each epoch", curves.time_curve, run),
    ]
    return RunPage(
        anchor=anchor,
        run=run,
        section=section,
        row=row,
        state=wording.state(row, run),
        matrix=_readable(_matrix, run),
        selection=_readable(_selection, run),
        speed=_readable(_speed, run),
        images=(*filter(has_lines, drawn), *confusions),
        notes=notes,
    )


def _readable(make: Callable[[Run], Table], run: Run) -> Table:
    """A table, or none of a run whose records are damaged: its state says so already."""
    try:
        return make(run)
    except DAMAGED:
        return ()


def _matrix(run: Run) -> Table:
    known = {
        (record["stage"], record["domain"]): wording.percent(run.accuracy(record))
        for record in run.of("accuracy", epoch=None, split="test")
    }
    lines = [
        (name, *(known.get((stage, domain), wording.EMPTY) for domain in run.domains))
        for stage, name in enumerate(stage_names(run.domains))
    ]
    return (("stage", *run.domains), *lines) if known else ()


def _selection(run: Run) -> Table:
    """Epochs are counted from 1, as in the figures."""
    lines: list[tuple[str, ...]] = []
    chosen, own = curves.chosen_epochs(run), str(run.config["select"])
    for stage, name in enumerate(stage_names(run.domains)):
        judged = judge(run, stage) if stage else []
        if stage in chosen and own not in [found.rule for found in judged]:
            lines.append((name, f"{own} (handed on)", str(chosen[stage] + 1), wording.EMPTY, wording.EMPTY))
        for found in judged:
            rule = f"{found.rule} (handed on)" if found.rule == own and stage in chosen else found.rule
            regret = wording.EMPTY if found.regret is None else wording.percent(found.regret)
            correlation = wording.EMPTY if found.correlation is None else f"{found.correlation:.2f}"
            lines.append((name, rule, str(found.epoch + 1), regret, correlation))
    return (("stage", "rule", "epoch", "regret", "rank correlation"), *lines) if lines else ()


def _speed(run: Run) -> Table:
    by_step: dict[tuple[int, int], Mapping[str, float]] = {(f["stage"], f["epoch"]): f for f in run.timing}
    lines = []
    for stage in sorted({stage for stage, _ in by_step}):
        facts = [by_step[step] for step in sorted(by_step) if step[0] == stage]
        seconds = [fact["seconds"] for fact in facts]
        speeds = [fact["images"] / fact["seconds"] for fact in facts if fact["seconds"] > 0]
        peaks = [fact["peak_bytes"] for fact in facts if "peak_bytes" in fact]
        lines.append(
            (
                stage_names(run.domains)[stage],
                str(len(facts)),
                f"{sum(seconds):.2f}",
                f"{statistics.median(seconds):.3f}",
                f"{statistics.median(speeds):.0f}" if speeds else wording.EMPTY,
                f"{max(peaks) / 2**20:.0f}" if peaks else wording.EMPTY,
            )
        )
    head = ("stage", "epochs", "seconds", "seconds per epoch", "images per second", "peak MiB")
    return (head, *lines) if lines else ()


def _confusions(run: Run) -> tuple[list[Image], tuple[str, ...]]:
    """The last stage's model on each domain of the chain."""
    found = classes.read_confusions(run, len(run.domains) - 1)
    if isinstance(found, str):
        return [], (f"Confusions: {found}.",) if "damaged" in found else ()
    names = [str(name) for name in run.config.get("classes") or ()]
    return [
        confusion_image(f"Confusions on {domain} after the last stage", counts, names)
        for domain, counts in zip(run.domains, found, strict=True)
        if counts is not None
    ], ()
