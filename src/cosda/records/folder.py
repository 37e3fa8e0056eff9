"""The run folder: open, append, close, read. No torch.

    runs/<benchmark>-<method>[-<ablation>]-s<seed>-<hash of the settings>/
      config.json        the resolved settings: all that the runner reads
      environment.json   versions and machine
      records.jsonl      facts, append only, one a line; equal bits for equal runs
      timing.jsonl       seconds and images per second: facts that are never equal twice
      checkpoint/        the last finished epoch (atomic)
      models/stage-N/    the model carried on from each stage
      embedding/         a sample of features for the report's t-SNE
      verdict/           of an adaptation without labels: whether it helped (`records/verdict.py`)
      confusion/         who is taken for whom, before the first stage and after the last
      tensorboard/       and wandb/, wandb.json: what optional writers made of the records
      verdict/           of an adaptation: whether it helped (`cosda.records.verdict`)
      failed.json        why `cosda bench` could not finish it, until it is tried again
      done.json          written last

config.json holds "kind": "adapt", or "source" for the training of a source model.

Kinds of record (accuracies are fractions; ``epoch`` counts from 0, and is null for the model that a stage
hands on, whose epoch was chosen by the run's selection rule):

    {"kind":"skipped","stage":0,"domain":"hand","images":{"7.png":"damaged"}}  images that cannot be read, and why
    {"kind":"loss","stage":1,"epoch":0,"steps":16,"images":1000,"passes":2.0,"rates":{"encoder":1e-3},"terms":{"consistency":0.7}}
    {"kind":"accuracy","stage":1,"epoch":0,"domain":"hand","split":"test","images":[..],"correct":[..]}
    {"kind":"alternative","stage":1,"epoch":null,"statistics":"merged",...}  with the other BatchNorm statistics
    {"kind":"validation","stage":1,"epoch":0,"images":1000,"scores":{"information":1.9}}  label-free; larger is better
    {"kind":"chosen","stage":1,"rule":"last","epoch":7}  the epoch whose model the stage hands on; null if it had none
    {"kind":"carried","stage":1,"rule":"last","share":0.0}  the carry rule, and the share of the incoming model in what
                                                    is handed on; with "tried" where the rule tried several shares
    {"kind":"embedding","stage":1,"file":"embedding/stage-1.npz"}
    {"kind":"confusion","stage":1,"file":"confusion/stage-1.npz"}  a matrix (true, predicted) for each domain: d0, d1, …

``images`` and ``correct`` are counts per class, so that every accuracy can be computed from them. After each epoch the
stage's target is measured, and the source; the model handed on is measured on all domains. Validators see unlabelled
training images of the target (`cosda.records.selection` says what they are).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from cosda.errors import CosdaError
from cosda.files import Json, flush, make_folder, write_json, writing

_WRITTEN = ("config.json", "records.jsonl", "timing.jsonl", "done.json")
FOR_EVER = -1.0  # seconds to wait


class RunFolder:
    """A run folder that this process alone may write to, from ``with`` to the end of the block.

    A second process waits ``wait`` seconds for the first; then it is told so and stops.
    """

    def __init__(self, path: Path, config: Json, wait: float = 0) -> None:
        self.path = path
        self.config = config
        self.followers: list[Callable[[], None]] = []  # called when what is recorded is certain
        self._lock = FileLock(path.with_name(path.name + ".lock"), timeout=wait)

    def __enter__(self) -> RunFolder:
        with writing(self.path):
            make_folder(self.path.parent)
            try:
                self._lock.acquire()
            except Timeout:
                raise CosdaError(
                    f"another process is writing to {self.path}. Wait for it to end, or use another --out or --seed."
                ) from None
        try:
            return self._open()
        except BaseException:
            self._lock.release()
            raise

    def _open(self) -> RunFolder:
        with writing(self.path):
            make_folder(self.path)
            self._check_files()
            self._sweep()
        if self.finished:  # it was killed before it could tidy up
            self._tidy()
        if not (self.path / "config.json").exists():
            write_json(self.path / "config.json", self.config)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        if (self.path / "done.json").exists():
            Path(self._lock.lock_file).unlink(missing_ok=True)

    def _check_files(self) -> None:
        """An error where writing would lead elsewhere: a folder from elsewhere may hold links, pipes and devices."""
        for name in _WRITTEN:
            place = self.path / name
            if place.is_symlink() or (place.exists() and not place.is_file()):
                raise CosdaError(
                    f"{place} is no file, but a link or something else. Delete the run folder and run again."
                )

    def _sweep(self) -> None:
        """Remove what a killed process left half-written; nobody else writes here now."""
        for path in sorted(self.path.rglob("*")):
            if path.suffix in (".tmp", ".old") or path.name.startswith(".tmp"):  # the last are of safetensors
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def _tidy(self) -> None:
        """Remove the checkpoint of a finished run. What a network drive does not give up it may at the second try."""
        for _ in range(2):
            shutil.rmtree(self.path / "checkpoint", ignore_errors=True)

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end; it is then never written to again."""
        return (self.path / "done.json").exists()

    def append(self, kind: str, /, **facts: Any) -> None:
        """Add one fact. Facts that differ between equal runs (seconds) belong into `append_timing`."""
        self._append("records.jsonl", {"kind": kind, **facts})

    def append_timing(self, **facts: Any) -> None:
        """Add one fact about speed or memory."""
        self._append("timing.jsonl", facts)

    def append_epoch(self, stage: int, facts: Json, timing: Json) -> None:
        """Add a finished epoch: its losses, and how long it took."""
        self.append("loss", stage=stage, **facts)
        self.append_timing(stage=stage, **timing)

    def _append(self, name: str, facts: Json) -> None:
        line = json.dumps(facts, separators=(",", ":"), ensure_ascii=False) + "\n"
        path = self.path / name
        with writing(path), path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(line)

    def length(self) -> int:
        """Bytes of records so far; a checkpoint stores it."""
        path = self.path / "records.jsonl"
        return path.stat().st_size if path.exists() else 0

    def rewind(self, length: int) -> None:
        """Forget what was recorded after a checkpoint, so that a resumed run repeats it and does not double it."""
        if self.length() < length:
            name = self.path / "records.jsonl"
            raise CosdaError(f"{name} is shorter than its checkpoint says. Delete the run folder and run again.")
        _cut(self.path / "records.jsonl", length)
        timing = self.path / "timing.jsonl"  # facts about time stay, but for half a line that a kill left
        _cut(timing, timing.read_bytes().rfind(b"\n") + 1 if timing.exists() else 0)

    def secure(self) -> int:
        """Have all that is recorded so far on the disk, and return its length: then a checkpoint may rest on it."""
        path = self.path / "records.jsonl"
        with writing(path):
            for place in (path, self.path) if path.exists() else ():
                flush(place)
        return self.length()

    def settle(self) -> None:
        """Say that nothing recorded so far will be cut off again: it lies behind a checkpoint."""
        for follower in self.followers:
            follower()

    def finish(self, **facts: Any) -> None:
        """Close the run: with done.json its checkpoint is no longer needed."""
        self.secure()
        self.settle()
        write_json(self.path / "done.json", facts)
        self._tidy()


def _cut(path: Path, length: int) -> None:
    with writing(path):
        path.touch()
        os.truncate(path, length)
