"""Commands during which something happens to the file system: at the N-th thing that they do to it.

What they do is seen by an audit hook: opening a file to write it, renaming, removing, linking, making a folder, and
bringing bytes to the disk (fsync). Just before the N-th of these the process is killed; or the power fails, which also
takes from every file what was not brought to the disk; or the system refuses, once or from then on.

`Events` starts a process that imports cosda and then forks for each command, since an import takes longer than a run.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SMALL = ("--epochs", "1", "--set", "network.bottleneck=8", "--quiet")  # a command that takes little
HANG = 300.0  # seconds without an answer
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Fate:
    """What happens to a command, and before which event; at 0 nothing does, and events are counted."""

    how: str = "nothing"  # kill, power, full, or the name of an error such as EIO
    at: int = 0
    for_good: bool = False  # whether an error stays
    largest: int | None = None  # bytes that a file may have


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    words: list[str]
    code: int
    out: str
    err: str
    events: list[str]
    """What it did to the file system, in order, up to where it was killed."""

    def check(self, codes: Sequence[int] = (0,)) -> Ended:
        """An error for a traceback, or an exit code that is none of these; a refusal has one line."""
        told = f"{' '.join(self.words)}\n{self.err[-3000:]}\nevents: {len(self.events)} {self.events[-3:]}"
        assert self.code in codes, told
        assert "Traceback" not in self.err, told
        lines = [line for line in self.err.splitlines() if not line.startswith("{")]
        assert self.code != 2 or len(lines) == (0 if "doctor" in self.words else 1), told
        return self


class Events:
    """The process, from here."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.fates: Counter[str] = Counter()

    def run(self, root: Path, *words: object, fate: Fate | None = None) -> Ended:
        """Do a command of which events below ``root`` count."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        texts = [str(word) for word in words]
        if fate is not None:
            self.fates["file size" if fate.largest is not None else fate.how] += 1
        asked = {"words": texts, "root": str(root), "fate": vars(fate or Fate())}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        assert select.select([self._process.stdout], [], [], HANG)[0], f"it hangs: {texts} {fate}"
        return Ended(texts, **json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


@contextmanager
def mounted(place: Path, options: str) -> Iterator[Path]:
    """A small file system in memory; skips a test where none can be made, because only root may."""
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


# --- in the process ---------------------------------------------------------------------------------------------------


class Hook:
    """Counts what is done to the file system below a folder, and lets a fate happen."""

    def __init__(self, root: str, fate: Fate, log: int) -> None:
        self.root, self.fate, self.log, self.count = os.path.realpath(root), fate, log, 0
        self.on_disk: dict[str, int] = {}  # bytes of files that are safe, where they may have more
        self.busy = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """What `sys.addaudithook` calls, before it is done."""
        if self.busy:
            return
        self.busy = True
        try:
            self._see(event, arguments)
        finally:
            self.busy = False

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = set(mode) & set("wax+") if isinstance(mode, str) else (flags or 0) & WRITING
            if writes and not isinstance(path, int) and (place := self._place(path)):
                self.on_disk.setdefault(place, _size(place))
                self._event("open", place)
        elif event in ("os.rename", "os.link"):
            old, new, old_fd, new_fd = arguments
            places = self._place(old, old_fd), self._place(new, new_fd)
            if places[1]:
                self._event(event, *places)
                self._moved(*places, keep=event == "os.link")
        elif event in ("os.remove", "os.rmdir", "os.mkdir"):
            path, fd = arguments[0], arguments[-1]
            place = self._place(path, fd)
            if place and os.path.lexists(place) == (event != "os.mkdir"):  # otherwise it changes nothing
                self._event(event, place)
                self.on_disk.pop(place, None)
        elif event == "os.truncate" and (place := self._place(arguments[0])):
            self._event(event, place)
            self.on_disk[place] = min(self.on_disk.get(place, arguments[1]), arguments[1])
        elif event == "ctypes.dlsym" and arguments[1] == "renameat2":
            self._event("exchange", "")

    def fsync(self, file: int) -> None:
        """In place of `os.fsync`, without the time that a disk takes: what is on the disk is written down here."""
        path = os.readlink(f"/proc/self/fd/{file}")
        self.busy, busy = True, self.busy
        try:
            if path.startswith(self.root):
                self._event("fsync", path)
                self.on_disk[path] = _size(path)
        finally:
            self.busy = busy

    def _place(self, path: Any, folder: int = -1) -> str:
        """Where it is; empty for what lies elsewhere."""
        text = os.fsdecode(path) if not isinstance(path, int) else os.readlink(f"/proc/self/fd/{path}")
        if not os.path.isabs(text):
            text = os.path.join(os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else os.getcwd(), text)
        text = os.path.join(os.path.realpath(os.path.dirname(text)), os.path.basename(text))
        return text if text.startswith(self.root + os.sep) else ""

    def _moved(self, old: str, new: str, keep: bool) -> None:
        if os.path.isfile(old):  # one that a library wrote by itself, and nobody brought to the disk, is lost
            self.on_disk.setdefault(old, 0)
        for place in [place for place in self.on_disk if place == old or place.startswith(old + os.sep)]:
            size = self.on_disk[place] if keep else self.on_disk.pop(place)
            self.on_disk[new + place[len(old) :]] = size

    def _event(self, kind: str, *places: str) -> None:
        self.count += 1
        fate = self.fate
        if fate.largest is None:  # which would hold for this file too
            os.write(self.log, f"{kind} {' '.join(places)}\n".encode(errors="replace"))
        if not fate.at or self.count < fate.at:
            return
        if fate.how in ("kill", "power"):
            for place, size in self.on_disk.items() if fate.how == "power" else ():
                if _size(place) > size:
                    os.truncate(place, size)
            os.kill(os.getpid(), signal.SIGKILL)
        frees = fate.how == "ENOSPC" and kind in ("os.remove", "os.rmdir")
        if (self.count == fate.at or fate.for_good) and not frees:
            number = getattr(errno, fate.how)
            raise OSError(number, os.strerror(number), places[0])


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.isfile(path) else 0


def serve() -> None:
    """Do commands, each in a process of its own, until there are no more."""
    import torch
    import torch._dynamo  # which the first optimiser would take seconds to import

    import cosda

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(cosda.__path__, "cosda."):
        importlib.import_module(module.name)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        asked = json.loads(line)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as log:
            child = os.fork()
            if not child:
                _do(asked, out.fileno(), err.fileno(), log.fileno())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            texts = []
            for file in (out, err, log):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
            said = {"code": code, "out": texts[0], "err": texts[1], "events": texts[2].splitlines()}
        print(json.dumps(said), file=answers, flush=True)


def _do(asked: dict[str, Any], out: int, err: int, log: int) -> None:
    from cosda.__main__ import main

    code = 1
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.argv = ["cosda", *asked["words"]]
        fate = Fate(**asked["fate"])
        hook = Hook(asked["root"], fate, log)
        os.fsync = hook.fsync
        sys.addaudithook(hook)
        if fate.largest is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (fate.largest, fate.largest))
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
