"""The run folder: open, append, close, read. No torch.

    runs/<benchmark>-<method>[-<ablation>]-s<seed>-<hash of the settings>/
      config.json        the resolved settings: all that the runner reads
      environment.json   versions and machine
      records.jsonl      facts, append only, one a line; equal bits for equal runs
      timing.jsonl       seconds and pictures per second: facts that are never equal twice
      checkpoint/        the last finished epoch (atomic)
      models/stage-N/    the model carried on from each stage
      embedding/         a sample of features for the report's t-SNE
      confusion/         who is taken for whom, before the first stage and after the last
      tensorboard/       and wandb/, wandb.json: what optional writers made of the records
      failed.json        why `cosda bench` could not finish it, until it is tried again
      done.json          written last

config.json holds "kind": "adapt", or "source" for the training of a source model.

Kinds of record (accuracies are fractions; ``epoch`` counts from 0, and is null for the model that a stage
hands on, whose epoch was chosen by the run's selection rule):

    {"kind":"loss","stage":1,"epoch":0,"steps":16,"pictures":1000,"passes":2.0,"rates":{"encoder":1e-3},"terms":{"consistency":0.7}}
    {"kind":"accuracy","stage":1,"epoch":0,"domain":"hand","split":"test","images":[..],"correct":[..]}
    {"kind":"alternative","stage":1,"epoch":null,"statistics":"merged",...}  with the other BatchNorm statistics
    {"kind":"validation","stage":1,"epoch":0,"pictures":1000,"scores":{"information":1.9}}  label-free; larger is better
    {"kind":"chosen","stage":1,"rule":"last","epoch":7}  the epoch whose model the stage hands on; null if it had none
    {"kind":"carried","stage":1,"rule":"last","share":0.0}  the carry rule, and the share of the incoming model in what
                                                    is handed on; with "tried" where the rule tried several shares
    {"kind":"embedding","stage":1,"file":"embedding/stage-1.npz"}
    {"kind":"confusion","stage":1,"file":"confusion/stage-1.npz"}  a matrix (true, predicted) for each domain: d0, d1, …

``images`` and ``correct`` are counts per class, so that every accuracy can be computed from them. After each epoch the
stage's target is measured, and the source; the model handed on is measured on all domains. Validators see unlabelled
training pictures of the target (`cosda.selection` says what they are).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from cosda import metrics
from cosda.errors import CosdaError

Json = dict[str, Any]
FOR_EVER = -1.0  # seconds to wait


def digest(value: Any) -> str:
    """Ten hexadecimal digits that name a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` so that a reader sees either the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"adapt": {"lr": 1}}`` -> ``{"adapt.lr": 1}``, in the order of the tree."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


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
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout:
            raise CosdaError(
                f"another process is writing to {self.path}. Wait for it to end, or use another --out or --seed."
            ) from None
        self.path.mkdir(exist_ok=True)
        self._sweep()
        if not (self.path / "config.json").exists():
            write_json(self.path / "config.json", self.config)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        if (self.path / "done.json").exists():
            Path(self._lock.lock_file).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove what a killed process left half-written; nobody else writes here now."""
        for path in sorted(self.path.rglob("*")):
            if path.suffix in (".tmp", ".old"):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

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

    def _append(self, name: str, facts: Json) -> None:
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts, separators=(",", ":"), ensure_ascii=False) + "\n")

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

    def settle(self) -> None:
        """Say that nothing recorded so far will be cut off again: it lies behind a checkpoint."""
        for follower in self.followers:
            follower()

    def finish(self, **facts: Any) -> None:
        """Close the run: its checkpoint is no longer needed, and done.json is written last."""
        self.settle()
        shutil.rmtree(self.path / "checkpoint", ignore_errors=True)
        write_json(self.path / "done.json", facts)


@dataclass(frozen=True)
class Run:
    """A run folder as read back."""

    path: Path
    config: Json
    records: tuple[Json, ...]
    timing: tuple[Json, ...]
    done: Json | None
    environment: Json = field(default_factory=dict)
    damage: str = ""  # why nothing of the folder could be read; its config is then empty
    failure: str = ""  # why a benchmark could not finish it

    @property
    def label(self) -> str:
        """How tables call this run: method, variant where it is not the default one, and ablation."""
        return str(self.config["label"])

    @property
    def domains(self) -> list[str]:
        """The chain, source first."""
        return list(self.config["domains"])

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.config["seed"])

    def of(self, kind: str, **wanted: Any) -> Iterator[Json]:
        """Records of one kind whose fields have the wanted values."""
        for record in self.records:
            if record["kind"] == kind and all(record.get(k) == v for k, v in wanted.items()):
                yield record

    def accuracy(self, record: Mapping[str, Any]) -> float:
        """The benchmark's headline accuracy of an accuracy record."""
        return metrics.accuracy(self.config["headline"], record["correct"], record["images"])

    def matrix(self, other: bool = False) -> list[list[float]] | None:
        """``accuracy[stage][domain]`` of the models handed on, or None while a cell is missing.

        ``other``: with the other BatchNorm statistics, which differ from stage 1 on.
        """
        found = {
            (r["stage"], r["domain"]): self.accuracy(r)
            for r in self.records
            if r["kind"] == ("alternative" if other and r["stage"] else "accuracy")
            and r["epoch"] is None
            and r["split"] == "test"
        }
        wanted = [[(stage, domain) for domain in self.domains] for stage in range(len(self.domains))]
        if any(cell not in found for row in wanted for cell in row):
            return None
        return [[found[cell] for cell in row] for row in wanted]

    def summary(self) -> Json:
        """The matrix and the numbers that follow from it; empty while a cell is missing."""
        matrix = self.matrix()
        if matrix is None:
            return {"domains": self.domains, "select": self.config["select"], "accuracy": None}
        return {
            "domains": self.domains,
            "select": self.config["select"],
            "accuracy": matrix,
            "average": metrics.average_accuracy(matrix),
            "adaptation": metrics.adaptation(matrix),
            "source_drop": metrics.source_drop(matrix),
            "harmonic": metrics.harmonic_mean(matrix),
            "bwt": metrics.backward_transfer(matrix),
            "bwt_without_source": metrics.backward_transfer(matrix, include_source=False),
            "forgetting": metrics.forgetting(matrix),
            "forward_transfer": metrics.forward_transfer(matrix),
        }


def read_run(path: Path) -> Run:
    """Read one run folder, finished or not."""
    if not (path / "config.json").is_file():
        raise CosdaError(f"{path} is not a run folder: it has no config.json.")
    return Run(
        path=path,
        config=_read_json(path / "config.json"),
        records=tuple(_read_lines(path / "records.jsonl")),
        timing=tuple(_read_lines(path / "timing.jsonl")),
        done=_read_json(path / "done.json") if (path / "done.json").exists() else None,
        environment=_read_json(path / "environment.json") if (path / "environment.json").exists() else {},
        failure=str(_read_json(path / "failed.json").get("reason", "")) if (path / "failed.json").exists() else "",
    )


def find_runs(paths: list[Path]) -> list[Run]:
    """All runs at or below the given paths, in the order of their names.

    A damaged run folder does not hide the others: it is handed on with an empty config and the damage.
    """
    found: dict[Path, Run] = {}
    for path in paths:
        if not path.exists():
            raise CosdaError(f"{path} does not exist. Give a run folder, or a folder that holds run folders.")
        for config in sorted(path.rglob("config.json")):
            run = _read_any_run(config.parent)
            if run is not None:
                found.setdefault(config.parent.resolve(), run)
    if not found:
        raise CosdaError(f"no runs found below {', '.join(map(str, paths))}. 'cosda run' makes them.")
    return sorted(found.values(), key=lambda run: run.path.name)


def _read_any_run(path: Path) -> Run | None:
    """A run, a damaged one, or None for the training of a source model, which has a folder of its own."""
    try:
        if _read_json(path / "config.json").get("kind") != "adapt":
            return None
        return read_run(path)
    except CosdaError as error:
        return Run(path, {}, (), (), None, damage=str(error).removeprefix(f"{path}{os.sep}"))


def _read_json(path: Path) -> Json:
    return _parse(path.read_bytes(), str(path))


def _read_lines(path: Path) -> Iterator[Json]:
    """Whole lines only: a process that was killed may have left half of the last one."""
    if path.exists():
        for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
            yield _parse(line, f"{path}, line {number},")


def _parse(text: bytes, where: str) -> Json:
    try:
        value = json.loads(text)
        if isinstance(value, dict):
            return value
        reason = "not a JSON object"
    except ValueError as error:
        reason = str(error)
    raise CosdaError(f"{where} is damaged: {reason}. Delete the run folder and run again.")


def _cut(path: Path, length: int) -> None:
    path.touch()
    os.truncate(path, length)
