"""A process that does one command after the other, because to start one for each case would take seconds.

It reads a JSON list of words in each line and answers with the exit code, what was printed, and the most memory that
was in use. `Server` starts it, and ends it where it hangs or takes too much.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from cosda.files import as_text

HANG = 120.0  # seconds without an answer

SECONDS = 20.0  # that a command may compute; a busy machine may take longer for them
MEMORY = 2 * 2**30
LONGEST = 4_000  # letters of a message


@dataclass(frozen=True)
class Outcome:
    """How a command ended; ``fault`` is what must never happen, and is empty otherwise."""

    words: list[str]
    code: int
    out: str
    err: str
    memory: int
    seconds: float
    fault: str

    def check(self, codes: Sequence[int] = (0, 2, 3)) -> Outcome:
        """An error for a traceback, a hang, too much memory, or an exit code that is none of ours.

        A refusal is one line that a terminal can show; click's own are some more.
        """
        told = f"{' '.join(self.words)}\n{self.fault}\n{self.err[-3000:]}"
        assert not self.fault, told
        assert self.code in codes, told
        assert "Traceback" not in self.err, told
        assert self.seconds < SECONDS, f"{self.seconds:.0f} s: {told}"
        assert self.memory < MEMORY, f"{self.memory / 2**20:.0f} MiB: {told}"
        if not self.err.startswith("Usage: "):  # click repeats what was typed
            assert all(as_text(line) == line and len(line) < LONGEST for line in self.err.splitlines()), told
        if self.code == 2 and self.words[0] not in ("doctor", "cache"):
            last = (self.err.splitlines() or [""])[-1]
            assert last.startswith("cosda: ") or self.err.startswith("Usage: "), told
        return self


@dataclass
class Tally:
    """What all commands together came to."""

    codes: Counter[int] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")
    largest: tuple[float, str] = (0.0, "")

    def add(self, outcome: Outcome) -> None:
        """Count a command."""
        words = " ".join(outcome.words)[:100]
        self.codes[outcome.code] += 1
        self.slowest = max(self.slowest, (outcome.seconds, words))
        self.largest = max(self.largest, (outcome.memory / 2**20, words))

    def __str__(self) -> str:
        codes = ", ".join(f"{count} with exit code {code}" for code, count in sorted(self.codes.items()))
        return (
            f"{self.codes.total()} commands: {codes}\n"
            f"slowest: {self.slowest[0]:.1f} s of computing: {self.slowest[1]!r}\n"
            f"most memory: {self.largest[0]:.0f} MiB: {self.largest[1]!r}"
        )


class Server:
    """The process, from here."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.tally = Tally()

    def run(self, *words: object) -> Outcome:
        """Do one command."""
        texts = [str(word) for word in words]
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(texts) + "\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], HANG)[0]:
            self.close()
            return Outcome(texts, -1, "", "", 0, 0.0, "it hangs")
        answer = process.stdout.readline()
        if not answer:
            self.close()
            return Outcome(texts, -1, "", "", 0, 0.0, f"it was killed (code {process.poll()})")
        outcome = Outcome(texts, **json.loads(answer))
        self.tally.add(outcome)
        return outcome

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
            env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"},  # where nobody answers
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self._process

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def serve(answers: IO[str]) -> None:
    """Do commands until there are no more."""
    import torch

    from cosda.__main__ import main

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_size() + 2 * MEMORY, -1))  # an error here, and not a dead machine
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_do(json.loads(line), main)), file=answers, flush=True)


def _do(words: list[str], main: object) -> dict[str, object]:
    Path("/proc/self/clear_refs").write_text("5")  # forget the most memory so far
    began = time.process_time()
    out, err, fault, code = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO(), "", 0
    sys.argv = ["cosda", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()  # type: ignore[operator]
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            fault = traceback.format_exc()
    out.flush()
    printed = out.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]
    spent = {"memory": _peak(), "seconds": time.process_time() - began}
    return {"code": code, "out": printed, "err": err.getvalue(), "fault": fault, **spent}


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def _size() -> int:
    return _status("VmSize")


def _peak() -> int:
    return _status("VmHWM")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        own = sys.stdout
        own.reconfigure(errors="surrogateescape")  # type: ignore[attr-defined]
        serve(own)
