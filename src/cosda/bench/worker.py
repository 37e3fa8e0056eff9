"""One run, wherever it is done: what an engine sends to a process, and what comes back."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cosda.errors import CosdaError, in_words, refusal
from cosda.watch import Watcher

if TYPE_CHECKING:  # these load torch, which only the process that works needs
    from cosda.bench.jobs import Job
    from cosda.run.machine import Machine


@dataclass(frozen=True)
class Work:
    """A job, the name that its run folder must have, and where to do it."""

    job: Job
    name: str
    out: Path
    machine: Machine


@dataclass(frozen=True)
class Answer:
    """Why a run failed (empty if it did not), and what a person should know of it."""

    reason: str = ""
    notes: list[str] = field(default_factory=list)


class _Notes(Watcher):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


def do_work(work: Work) -> Answer:
    """Do one run or what is left of it. A failure is an answer too, and not an error of the process."""
    from cosda.api import run_request
    from cosda.run.memory import keep_freed_memory

    keep_freed_memory()
    notes, job = _Notes(), work.job
    try:
        run = run_request(job.benchmark(), job.request, work.out, work.machine, notes)
        if run.path.name != work.name:
            raise CosdaError(
                f"{job.data} holds other images here than where the command was started: the run became "
                f"{run.path.name} and not {work.name}. Give all machines the same data."
            )
    except CosdaError as error:
        return Answer(str(error), notes.texts)
    except Exception as error:
        refused = refusal(error)
        return Answer(in_words(refused) if refused else traceback.format_exc(), notes.texts)
    return Answer("", notes.texts)
