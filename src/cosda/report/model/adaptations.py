"""Runs that adapted a model to one new domain and judged that without labels: what `cosda adapt` leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cosda.errors import CosdaError
from cosda.files import read_json
from cosda.records.lineage import Step as Recorded
from cosda.records.lineage import read_lineage
from cosda.records.run import Run
from cosda.records.verdict import FOLDER, JudgedImage, Verdict, Word, read_images, read_verdict
from cosda.report.model.groups import DAMAGED
from cosda.report.model.names import identity

T = TypeVar("T")
STEPS = {"source": "trained on labels", "profile": "profile made", "drop": "taken out"}


@dataclass(frozen=True)
class Step:
    """One step on the way to a model."""

    name: str  # of its domain; of what the model was made of, where it came from elsewhere
    how: str  # what was done
    date: str
    verdict: str = ""


@dataclass(frozen=True)
class Adaptation:
    """One adaptation, and what is known of its success."""

    run: Run
    verdict: Verdict | None  # None where it is damaged
    images: tuple[JudgedImage, ...]  # that somebody should look at
    lineage: tuple[Step, ...]  # of the model, oldest first; this adaptation is the last step
    problems: tuple[str, ...]  # what could not be read

    @property
    def domain(self) -> str:
        """The new one."""
        return self.run.domains[-1] if self.verdict is None else self.verdict.domain

    @property
    def word(self) -> Word | str:
        """The verdict, or that nobody knows it."""
        return "unreadable" if self.verdict is None else self.verdict.verdict

    @property
    def chain(self) -> tuple[str, ...]:
        """The domains that the model has gone through, by their true names."""
        return tuple(dict.fromkeys(step.name for step in self.lineage))


def split_adaptations(runs: Sequence[Run]) -> tuple[tuple[Adaptation, ...], list[Run]]:
    """Adaptations that were judged, in the order in which they were made; and all other runs."""
    found: list[Adaptation] = []
    others: list[Run] = []
    for run in runs:
        adaptation = _adaptation(run) if run.config and (run.path / FOLDER).is_dir() else None
        if adaptation is None:
            others.append(run)
        else:
            found.append(adaptation)
    found.sort(key=lambda one: (max(step.date for step in one.lineage), len(one.lineage), one.run.path.name))
    return tuple(found), others


def _adaptation(run: Run) -> Adaptation | None:
    """The adaptation that a run was; None where nothing was judged, or its config is that of no run."""
    try:
        _ = run.label, run.seed, run.domains[-1], identity(run)
    except DAMAGED:
        return None
    problems = [run.damage] if run.damage else []

    def readable(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except CosdaError as error:
            problems.append(str(error).removeprefix(f"{run.path}{os.sep}"))
        return None

    verdict = readable(lambda: read_verdict(run.path))
    if verdict is None and not (run.path / FOLDER / "verdict.json").exists():
        return None
    images = readable(lambda: read_images(run.path)) or ()
    lineage = readable(lambda: _lineage(run, verdict)) or (_this_step(run, verdict, ""),)
    return Adaptation(run, verdict, images, lineage, tuple(problems))


def _lineage(run: Run, verdict: Verdict | None) -> tuple[Step, ...]:
    """Of the model that the run made; where it made none, of the one that it began with, and this run."""
    for stage in (len(run.domains) - 1, 0):
        path = run.path / "models" / f"stage-{stage}" / "model.json"
        try:
            if path.is_file():
                steps = [*map(_step, read_lineage(read_json(path)["lineage"], f"{path} is damaged"))]
                date = steps.pop().date if stage else ""
                return (*steps, _this_step(run, verdict, date))
        except DAMAGED as error:
            raise CosdaError(f"{path} is damaged: {error!r}.") from None
    return ()


def _this_step(run: Run, verdict: Verdict | None, date: str) -> Step:
    name = run.domains[-1] if verdict is None else verdict.domain
    return Step(name, run.label, date, "" if verdict is None else verdict.verdict)


def _step(step: Recorded) -> Step:
    """A step as a reader of the report sees it."""
    name = step.domain or step.method or step.step
    how = step.made_by or "adapted" if step.step == "adapt" else STEPS.get(step.step, step.step)
    how = "" if how == name else how
    return Step(name, how, step.date or "", step.verdict or "")
