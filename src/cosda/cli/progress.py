"""How the command line shows what happens: one bar for the whole job on a terminal, lines of JSON elsewhere."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from cosda.units import duration
from cosda.watch import Watcher

SETTLED = 5.0  # seconds of training after which its speed says how long the rest will take
LONG = 600.0  # seconds from which on a hint is worth a line
SHOWN = 5  # skipped images that are named


def open_watcher(quiet: bool) -> Watcher:
    """Skipped images alone if quiet, bars if standard error is a terminal, lines of JSON otherwise."""
    if quiet:
        return Quiet()
    return Bars() if sys.stderr.isatty() else Lines()


class Quiet(Watcher):
    """Says nothing but what must not be missed."""

    def skipped(self, domain: str, images: Sequence[tuple[str, str]]) -> None:
        """Images that are left out are always told of."""
        print(f"cosda: {skipped_line(domain, images)}", file=sys.stderr)

    def ignored(self, domain: str, files: str) -> None:
        """Nor is a folder of .heic files passed over in silence."""
        print(f"cosda: {ignored_line(domain, files)}", file=sys.stderr)


def ignored_line(domain: str, files: str) -> str:
    """Which files are no images, in one line."""
    return f"ignored {files} of {domain}: not images of a known kind"


def skipped_line(domain: str, images: Sequence[tuple[str, str]]) -> str:
    """What was left out, in one line."""
    named = "; ".join(f"{name}: {reason}" for name, reason in images[:SHOWN])
    more = f"; and {len(images) - SHOWN} more" if len(images) > SHOWN else ""
    return f"skipped {len(images)} of {domain}, which cannot be read: {named}{more}"


class _Clock:
    """How long a job will take, from the speed of its training so far."""

    def __init__(self, images: int, hint: str) -> None:
        self.images, self.hint = images, hint
        self.done, self.timed, self.seconds = 0, 0, 0.0
        self.told = False

    def count(self, images: int, seconds: float) -> None:
        """So many images were trained on in so many seconds; images of an earlier process took none."""
        self.done += images
        if seconds:
            self.timed, self.seconds = self.timed + images, self.seconds + seconds

    def estimate(self) -> str:
        """A line about the whole job, once, as soon as it can be told."""
        if self.told or self.seconds < SETTLED or not self.timed:
            return ""
        self.told = True
        left = self.seconds / self.timed * max(0, self.images - self.done)
        hint = f"; {self.hint}" if self.hint and left > LONG else ""
        return f"about {duration(left)} of training left{hint}"


class Lines(Watcher):
    """One JSON object a line on standard error, when something is done and not while it goes on."""

    clock: _Clock | None = None

    def note(self, text: str) -> None:
        """Something a person should know."""
        self._say(event="note", text=text)

    def skipped(self, domain: str, images: Sequence[tuple[str, str]]) -> None:
        """Images that are left out."""
        self._say(event="skipped", domain=domain, images=[{"image": name, "reason": why} for name, why in images])

    def ignored(self, domain: str, files: str) -> None:
        """Files that are no images."""
        self._say(event="ignored", domain=domain, files=files)

    def job(self, title: str, images: int, hint: str = "") -> None:
        """The whole training begins."""
        self.clock, self.last = _Clock(images, hint), time.perf_counter()
        self._say(event="job", title=title, images=images)

    def begin(self, task: str, steps: int, unit: str = "steps") -> None:
        """A task begins."""
        self.task, self.steps, self.start = task, steps, time.perf_counter()
        self.last = self.start

    def advance(self, steps: int = 1, images: int = 0, values: Mapping[str, float] | None = None) -> None:
        """Some steps are done."""
        now = time.perf_counter()
        if self.clock and images and (values is not None or not steps):
            self.clock.count(images, now - self.last if steps else 0.0)
            if text := self.clock.estimate():
                self._say(event="estimate", text=text)
        self.last = now

    def end(self, **facts: Any) -> None:
        """The task is done."""
        seconds = time.perf_counter() - self.start
        rounded = {key: round(value, 5) for key, value in facts.items()}
        share = {"share": round(self.clock.done / self.clock.images, 4)} if self.clock and self.clock.images else {}
        self._say(event="done", task=self.task, steps=self.steps, seconds=round(seconds, 2), **share, **rounded)

    def measured(self, stage: int, epoch: int | None, domain: str, accuracy: float) -> None:
        """A model was measured."""
        self._say(event="accuracy", stage=stage, epoch=epoch, domain=domain, accuracy=round(accuracy, 5))

    def _say(self, **facts: Any) -> None:
        print(json.dumps(facts, ensure_ascii=False), file=sys.stderr, flush=True)


class Bars(Watcher):
    """One bar for the whole job, with what is done now, loss terms, images per second and time left."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.clock: _Clock | None = None
        self.bar: Progress | None = None
        self.last = time.perf_counter()

    def note(self, text: str) -> None:
        """Something a person should know."""
        self.console.print(text, style="dim", markup=False, soft_wrap=True)

    def skipped(self, domain: str, images: Sequence[tuple[str, str]]) -> None:
        """Images that are left out."""
        self.console.print(skipped_line(domain, images), style="yellow", markup=False, soft_wrap=True)

    def ignored(self, domain: str, files: str) -> None:
        """Files that are no images."""
        self.console.print(ignored_line(domain, files), style="yellow", markup=False, soft_wrap=True)

    def job(self, title: str, images: int, hint: str = "") -> None:
        """The whole training begins: from now on the bar counts its images."""
        self.clock = _Clock(images, hint)
        self._open(title, images)

    def begin(self, task: str, steps: int, unit: str = "steps") -> None:
        """A task begins; before and after the training each has a bar of its own."""
        if self.clock is None:
            self._open(task, steps)
        else:
            assert self.bar is not None
            self.bar.update(self.shown, description=task)
        self.last = time.perf_counter()

    def advance(self, steps: int = 1, images: int = 0, values: Mapping[str, float] | None = None) -> None:
        """Some steps are done."""
        assert self.bar is not None
        now = time.perf_counter()
        if self.clock is None:
            self.bar.update(self.shown, advance=steps)
        elif images and (values is not None or not steps):
            self.clock.count(images, now - self.last if steps else 0.0)
            terms = " ".join(f"{name} {value:.3f}" for name, value in (values or {}).items())
            speed = self.clock.timed / self.clock.seconds if self.clock.seconds else 0.0
            self.bar.update(self.shown, completed=self.clock.done, about=f"{speed:.0f} images/s {terms}")
            if text := self.clock.estimate():
                self.note(text)
            if self.clock.done >= self.clock.images:
                self._close()
        self.last = now

    def end(self, **facts: Any) -> None:
        """The task is done."""
        if self.clock is None:
            self._close()

    def measured(self, stage: int, epoch: int | None, domain: str, accuracy: float) -> None:
        """A model was measured."""
        when = "handed on" if epoch is None else f"epoch {epoch + 1}"
        self.console.print(f"  stage {stage}, {when}: {domain} {accuracy:.1%}", style="dim", markup=False)

    def _open(self, title: str, total: int) -> None:
        self._close()
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[about]}", markup=False),
        )
        self.bar = Progress(*columns, console=self.console, transient=True)
        self.shown = self.bar.add_task(title, total=total, about="")
        self.bar.start()

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
