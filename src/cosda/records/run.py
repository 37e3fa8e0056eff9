"""A run folder as read back, finished or not; `cosda.records.folder` says what it holds. No torch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cosda import metrics
from cosda.errors import CosdaError
from cosda.files import Json, open_regular, parse_json, read_json
from cosda.records.schema import check_config, check_records
from cosda.shown import Facts, Shown, percent


@dataclass(frozen=True)
class RoutedImages:
    """Where a domain bank sent the test images of one domain, as shares of these images."""

    images: int
    experts: Mapping[str, float]  # by domain, the base's first: the share for which it was the most likely one
    own: str | None  # the expert for such images; None where there is none yet
    mixed: float  # answered by several experts
    unknown: float  # resemble no known domain
    crossfitted: bool  # whether each was routed by a profile of its domain that was made without it


@dataclass(frozen=True)
class Run(Shown):
    """A run folder as read back."""

    path: Path
    config: Json = field(repr=False)  # this and the following have thousands of lines
    records: tuple[Json, ...] = field(repr=False)
    timing: tuple[Json, ...] = field(repr=False)
    done: Json | None
    environment: Json = field(default_factory=dict, repr=False)
    damage: str = ""  # what does not fit; there are no records then, and no config where that is what does not fit
    failure: str = ""  # why a benchmark could not finish it

    def _facts(self) -> Facts:
        if not self.config:
            return Facts(f"{self.path.name}: {self.damage}", ())
        matrix, summary = self.matrix(), self.summary()
        title = f"{self.label}, seed {self.seed}: accuracy in percent"
        if matrix is None:
            return Facts(title, (), below=[self.damage or self.failure or "not measured to the end"])
        rows = [
            (f"after {name}", *(f"{100 * value:.1f}" for value in row))
            for name, row in zip(self.domains, matrix, strict=True)
        ]
        named = [name for name, measure in metrics.MEASURES.items() if measure.short and summary[name] is not None]
        below = ", ".join(f"{metrics.MEASURES[name].title.lower()} {percent(summary[name])}" for name in named)
        return Facts(title, rows, ("", *self.domains), [below])

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
        domains = self.domains
        if len(found) < len(domains) ** 2:
            return None
        wanted = [[(stage, domain) for domain in domains] for stage in range(len(domains))]
        if any(cell not in found for row in wanted for cell in row):
            return None
        return [[found[cell] for cell in row] for row in wanted]

    def routing(self, stage: int | None = None) -> dict[str, RoutedImages]:
        """Where the domain bank that a stage handed on sent the images of each domain; empty where it is no bank.

        Args:
            stage: its number; without it, the last one that was measured.

        Example:
            >>> run.routing()["hand"].experts
            {'print': 0.01, 'colour': 0.02, 'hand': 0.97}
        """
        if stage is None:
            stage = max((record["stage"] for record in self.of("routing")), default=0)
        return {record["domain"]: self._sent(record) for record in self.of("routing", stage=stage)}

    def _sent(self, record: Mapping[str, Any]) -> RoutedImages:
        domain, images = record["domain"], sum(record["sent"])
        experts = {name: count / images for name, count in zip(record["known"], record["sent"], strict=True)}
        own = domain if domain in experts else None
        if own is None and domain == self.domains[0]:
            own = record["known"][0]  # the base's, which knows its domain by another name
        mixed, unknown = record["mixed"] / images, record["unknown"] / images
        return RoutedImages(images, experts, own, mixed, unknown, bool(record["crossfitted"]))

    def base_accuracy(self, domain: str) -> float | None:
        """The accuracy of a bank's base; None where it was not measured, as in a run that began with experts."""
        if self.routing(0):
            return None
        return self._one_accuracy("accuracy", stage=0, domain=domain)

    def expert_accuracy(self, domain: str) -> float | None:
        """The accuracy of a domain's own expert, its domain being known; None where it was not measured."""
        if domain == self.domains[0]:
            return self.base_accuracy(domain)
        return self._one_accuracy("expert", domain=domain)

    def _one_accuracy(self, kind: str, **wanted: Any) -> float | None:
        found = [self.accuracy(record) for record in self.of(kind, epoch=None, split="test", **wanted)]
        return found[-1] if found else None

    def summary(self) -> Json:
        """The matrix and every measure of it by name; no measure while a cell of the matrix is missing."""
        matrix = self.matrix()
        if matrix is None:
            return {"domains": self.domains, "select": self.config["select"], "accuracy": None}
        return {
            "domains": self.domains,
            "select": self.config["select"],
            "accuracy": matrix,
            **metrics.summary(matrix),
        }


def read_run(path: Path) -> Run:
    """Read one run folder, finished or not."""
    if not (path / "config.json").is_file():
        raise CosdaError(f"{path} is not a run folder: it has no config.json.")
    return Run(
        path=path,
        config=_read_object(path / "config.json"),
        records=tuple(_read_lines(path / "records.jsonl")),
        timing=tuple(_read_lines(path / "timing.jsonl")),
        done=_read_object(path / "done.json") if (path / "done.json").exists() else None,
        environment=_read_object(path / "environment.json") if (path / "environment.json").exists() else {},
        failure=str(_read_object(path / "failed.json").get("reason", "")) if (path / "failed.json").exists() else "",
    )


def read_whole_run(path: Path) -> Run:
    """Read one run folder all of whose facts are as they must be (`cosda.records.schema`).

    Raises:
        CosdaError: something is damaged.
    """
    run = read_run(path)
    try:
        check_config(run.config)
        check_records(run.config, run.records, run.timing)
    except CosdaError as error:
        raise CosdaError(f"{path}{os.sep}{error} {REPAIR}") from None
    return run


def find_runs(paths: str | Path | Iterable[str | Path]) -> list[Run]:
    """All runs at or below a path, or several, in the order of their names.

    A damaged run folder does not hide the others: it is handed on without records, with what is damaged.
    """
    folders = list(map(Path, [paths] if isinstance(paths, str | Path) else paths))
    found: dict[Path, Run] = {}
    for path in folders:
        if not path.exists():
            raise CosdaError(f"{path} does not exist. Give a run folder, or a folder that holds run folders.")
        for config in sorted(path.rglob("config.json")):
            if (run := read_any_run(config.parent)) is not None:
                found.setdefault(config.parent.resolve(), run)
    if not found:
        raise CosdaError(f"no runs found below {', '.join(map(str, folders))}. 'cosda run' makes them.")
    return sorted(found.values(), key=lambda run: run.path.name)


def read_any_run(path: Path) -> Run | None:
    """A run folder, however damaged: without records then, and without a config where that is what is damaged.

    None for what is no run, such as the training of a source model, which has a folder of its own.
    """
    config: Json = {}
    try:
        if _read_object(path / "config.json").get("kind") != "adapt":
            return None
        run = read_run(path)
        check_config(run.config)
        config = run.config
        check_records(config, run.records, run.timing)
    except CosdaError as error:
        return Run(path, config, (), (), None, damage=str(error).removeprefix(f"{path}{os.sep}"))
    return run


REPAIR = "Delete the run folder and run again."


def _read_object(path: Path) -> Json:
    return _object(read_json(path), str(path))


def _read_lines(path: Path) -> Iterator[Json]:
    """Whole lines only: a process that was killed may have left half of the last one."""
    if path.exists():
        try:
            with open_regular(path) as file:
                for number, line in enumerate(file, start=1):
                    if line.endswith(b"\n"):
                        where = f"{path}, line {number},"
                        yield _object(parse_json(line, where), where)
        except OSError as error:
            raise CosdaError(f"{path} cannot be read: {error.strerror or error}.") from None


def _object(value: Any, where: str) -> Json:
    if isinstance(value, dict):
        return value
    raise CosdaError(f"{where} is damaged: not a JSON object. {REPAIR}")
