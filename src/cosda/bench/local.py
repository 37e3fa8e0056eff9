"""The engine `local`: worker processes on this machine, one for each device or for so many cores.

Workers live as long as the command. One that dies costs only its run, and a new one takes its place. When the command
itself dies its workers see it and end too, so that nobody holds a run folder.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle, islice
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING

from cosda.bench.scheduler import Ended, Engine, Resources, Say
from cosda.bench.worker import Answer, Work, do_work
from cosda.errors import CosdaError

if TYPE_CHECKING:  # these load torch
    from cosda.bench.tasks import Task
    from cosda.run.machine import Machine

# A forked copy of a program that has used torch may hang; a spawned one starts afresh.
SPAWN = multiprocessing.get_context("spawn")


@dataclass
class _Worker:
    """A process, the pipe to it, and what it is doing."""

    process: SpawnProcess
    pipe: Connection
    log: Path
    task: Task | None = None


class LocalEngine(Engine):
    """Persistent worker processes; each does one run at a time on its device."""

    title = "processes on this machine"

    @classmethod
    def open(cls, resources: Resources, out: Path, machine: Machine, say: Say) -> LocalEngine:
        """The engine; its workers are started when they are first needed."""
        if resources.address is not None:
            raise CosdaError("--address is that of a Ray cluster; give --engine ray with it.")
        return cls(out, machine, local_devices(machine.device, resources.workers, resources.cores, resources.gpus))

    def __init__(self, out: Path, machine: Machine, devices: list[str]) -> None:
        self.out, self.machine, self.devices = out, machine, devices
        self._workers: dict[int, _Worker] = {}  # by place in `devices`; started when first needed
        self._logs = tempfile.TemporaryDirectory(prefix="cosda-workers-")

    def free(self) -> int:
        """Devices without a run."""
        return len(self.devices) - sum(worker.task is not None for worker in self._workers.values())

    def start(self, task: Task) -> None:
        """Give a run to an idle worker, or to a new one."""
        place = next(n for n in range(len(self.devices)) if n not in self._workers or self._workers[n].task is None)
        worker = self._workers.get(place) or self._open(place)
        worker.task = task
        machine = replace(self.machine, device=self.devices[place])
        with suppress(OSError):  # it has died in idleness, which `wait` will notice
            worker.pipe.send(Work(task.job, task.plan.name, self.out, machine))

    def wait(self, seconds: float) -> list[Ended]:
        """Answers of workers, and the deaths of others."""
        pipes = {worker.pipe: place for place, worker in self._workers.items()}
        ended = []
        for pipe in wait(list(pipes), seconds):  # a dead worker's pipe is ready too: it is at its end
            place = pipes[pipe]  # type: ignore[index]
            worker = self._workers[place]
            try:
                answer, death = worker.pipe.recv(), ""
            except (EOFError, OSError):
                answer, death = Answer(), self._bury(place)
            task, worker.task = worker.task, None
            if task is not None:
                ended.append(Ended(task, answer, death))
        return ended

    def close(self) -> None:
        """End all workers, whatever they do."""
        for place in list(self._workers):
            self._workers[place].process.kill()
            self._bury(place)
        self._logs.cleanup()

    def _open(self, place: int) -> _Worker:
        ours, theirs = SPAWN.Pipe()
        log = Path(self._logs.name) / f"worker-{place}.log"
        process = SPAWN.Process(target=_serve, args=(theirs, log), name=f"cosda-worker-{place}", daemon=True)
        process.start()
        theirs.close()
        self._workers[place] = _Worker(process, ours, log)
        return self._workers[place]

    def _bury(self, place: int) -> str:
        """Remove a dead worker and say what it died of."""
        worker = self._workers.pop(place)
        worker.process.join()
        worker.pipe.close()
        code = worker.process.exitcode or 0
        said = worker.log.read_text(encoding="utf-8", errors="replace").strip() if worker.log.exists() else ""
        reason = f"it ended with code {code}"
        if code < 0:
            reason = f"it was killed by signal {-code} ({signal.Signals(-code).name})"
            if -code == signal.SIGKILL:
                reason += ", as the system does when memory is short"
        return f"{reason}: {said.splitlines()[-1]}" if said else reason


def _serve(pipe: Connection, log: Path) -> None:
    """The life of a worker: do what comes through the pipe until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the command decides for all
    threading.Thread(target=_follow_parent, daemon=True).start()
    with log.open("w") as file:  # the terminal belongs to the table; a last word is wanted when the worker dies
        sys.stdout.flush()
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    while True:
        try:
            work = pipe.recv()
        except EOFError:
            return
        pipe.send(do_work(work))


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def cores_here() -> int:
    """Cores that this process may use, which in a container may be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local_devices(device: str, workers: int | None, cores: int, gpus: float | None) -> list[str]:
    """The device of each worker: all GPUs, shared by 1/gpus runs each, or the CPU once for every ``cores`` cores."""
    import torch

    if gpus is not None and gpus > 1:
        raise CosdaError(f"--gpus-per-run {gpus:g}: a run uses one GPU at most; give 1, or less to share one.")
    wanted = device
    if device in ("auto", "cuda"):
        wanted = "cuda" if gpus != 0 and (device == "cuda" or torch.cuda.is_available()) else "cpu"
    if wanted == "cpu":
        return ["cpu"] * (workers or max(1, cores_here() // cores))
    names = [f"cuda:{n}" for n in range(torch.cuda.device_count())] if wanted == "cuda" else [wanted]
    if not names:
        raise CosdaError("this machine has no GPU that torch can use. Give --device cpu.")
    shared = [name for _ in range(int(1 / (gpus or 1))) for name in names]
    return list(islice(cycle(shared), workers)) if workers else shared
