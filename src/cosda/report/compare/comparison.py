"""What differs between two runs: in what they are, their settings, where they ran, and their results. No torch.

A value that one of the runs does not have is no value at all and never a zero. Accuracies are fractions, never percent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosda import metrics
from cosda.errors import CosdaError
from cosda.files import Json, flatten
from cosda.records.run import Run, read_run, read_whole_run
from cosda.records.timing import images_per_second, seconds_per_epoch
from cosda.report.model.groups import group_runs

# What a run is, beside its settings: key of config.json -> its name in words.
IDENTITY = {
    "benchmark": "benchmark",
    "fingerprint": "data fingerprint",
    "domains": "chain",
    "classes": "classes",
    "protocol": "protocol",
    "headline": "accuracy",
    "select": "selection rule",
    "method": "method",
    "variant": "variant",
    "ablation": "ablation",
    "model": "given source model",
    "seed": "seed",
}

# Two runs that differ in one of these may not be compared without a second thought.
WARNINGS = {
    "benchmark": "the benchmarks differ: domains of one name need not be the same images.",
    "fingerprint": "the data differ: images, labels or splits are not the same.",
    "domains": "the chains differ: only domains of both are shown, and summaries are over other domains.",
    "classes": "the classes differ.",
    "protocol": "the protocols differ: one was measured on images that it was adapted on.",
    "headline": "the accuracies differ: one is over images, the other a mean over classes.",
    "select": "the selection rules differ: the epochs of each stage were chosen in different ways.",
}
MACHINE = ("machine", "cores", "threads", "device", "precision", "compiled", "processes")


@dataclass(frozen=True)
class Value:
    """A value and where it came from."""

    value: Any
    origin: str = ""

    def as_json(self) -> Json:
        """The value, with its origin where it has one."""
        return {"value": self.value} | ({"origin": self.origin} if self.origin else {})


@dataclass(frozen=True)
class Difference:
    """Something that is not the same; None where a run does not have it."""

    name: str
    a: Value | None
    b: Value | None

    def as_json(self) -> Json:
        """Both values; null where a run has none."""
        return {
            "name": self.name,
            "a": self.a.as_json() if self.a else None,
            "b": self.b.as_json() if self.b else None,
        }


@dataclass(frozen=True)
class Number:
    """One number of both runs; None where a run does not have it."""

    name: str
    a: float | None
    b: float | None

    @property
    def difference(self) -> float | None:
        """How much more B has."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def ratio(self) -> float | None:
        """How many times as much B has."""
        return None if not self.a or self.b is None else self.b / self.a


@dataclass(frozen=True)
class Measured:
    """Accuracies on some domains after one stage of the chain."""

    after: str
    domains: tuple[Number, ...]


@dataclass(frozen=True)
class Expert:
    """What two domain banks have for one domain after their last stage."""

    domain: str
    accuracy: Number  # of its own expert, the domain being known
    found: Number  # the share of its images that were sent to it, the domain being unknown


@dataclass(frozen=True)
class Comparison:
    """All that differs between two runs."""

    a: Run
    b: Run
    warnings: tuple[str, ...]
    identity: tuple[Difference, ...]
    settings: tuple[Difference, ...]
    environment: tuple[Difference, ...]
    missing: Mapping[str, str]  # "a" or "b" -> why it has no results
    accuracy: tuple[Measured, ...]
    experts: tuple[Expert, ...]  # of the domains of both; none where no run is of a domain bank
    summary: tuple[Number, ...]
    cost: tuple[Number, ...]

    def as_json(self) -> Json:
        """Everything, for programs."""
        runs = {
            side: {"run": str(run.path), "label": run.label, "finished": run.done is not None, "missing": why}
            for side, run, why in (("a", self.a, self.missing.get("a")), ("b", self.b, self.missing.get("b")))
        }
        differing = {
            name: [one.as_json() for one in getattr(self, name)] for name in ("identity", "settings", "environment")
        }
        accuracy = [{"after": at.after, "domains": [_json(one) for one in at.domains]} for at in self.accuracy]
        experts = [{"domain": o.domain, "accuracy": _json(o.accuracy), "found": _json(o.found)} for o in self.experts]
        cost = [{"name": one.name, "a": one.a, "b": one.b, "ratio": one.ratio} for one in self.cost]
        summary = [_json(one) for one in self.summary]
        results = {"accuracy": accuracy, "experts": experts, "summary": summary, "cost": cost}
        return {**runs, "warnings": list(self.warnings), **differing, **results}


def compare(first: Path, second: Path) -> Comparison:
    """Compare two run folders, finished or not."""
    a, b = _read(first), _read(second)
    identity = _differences(_identity(a), _identity(b))
    environment = _differences(_values(flatten(a.environment)), _values(flatten(b.environment)))
    (matrix_a, reason_a), (matrix_b, reason_b) = _result(a), _result(b)
    cost = _numbers(_cost(a), _cost(b))
    measured = matrix_a is not None or matrix_b is not None
    return Comparison(
        a=a,
        b=b,
        warnings=tuple(_warnings(a, b, {one.name for one in environment}, timed=bool(cost))),
        identity=identity,
        settings=_differences(_settings(a), _settings(b)),
        environment=environment,
        missing={side: reason for side, reason in (("a", reason_a), ("b", reason_b)) if reason},
        accuracy=tuple(_accuracy(a, b, matrix_a, matrix_b)) if measured else (),
        experts=tuple(_experts(a, b)),
        summary=_numbers(_summary(matrix_a), _summary(matrix_b)),
        cost=cost,
    )


def _read(path: Path) -> Run:
    """A run folder whose facts are all there, or an error that says what it is instead."""
    if not path.exists():
        raise CosdaError(f"{path} does not exist. Give two run folders, such as those below 'runs'.")
    if read_run(path).config.get("kind") == "source":
        raise CosdaError(
            f"{path} is the training of a source model. Only runs can be compared: folders of 'cosda run'."
        )
    return read_whole_run(path)


def _warnings(a: Run, b: Run, environment: set[str], timed: bool) -> Iterator[str]:
    differing = [key for key in WARNINGS if a.config[key] != b.config[key]]
    for key in differing:
        # Another chain is other data by itself; that it is says the warning about chains.
        if not (key == "fingerprint" and "domains" in differing):
            yield WARNINGS[key]
    if timed and environment & set(MACHINE):
        yield "the machines differ: seconds and memory are not those of the methods alone."


def _identity(run: Run) -> dict[str, Value | None]:
    found = {name: run.config.get(key) for key, name in IDENTITY.items()}
    return {name: None if value is None else Value(value) for name, value in found.items()}


def _settings(run: Run) -> dict[str, Value]:
    """All settings, those that are special to a target as ``stage.TARGET.section.key``."""
    flat = flatten(run.config["settings"]) | flatten({"stage": run.config.get("stages", {})})
    origins = run.config.get("origins", {})
    # A section without settings is nothing that a run has.
    return {key: Value(value, str(origins.get(key, ""))) for key, value in flat.items() if value != {}}


def _values(flat: Mapping[str, Any]) -> dict[str, Value]:
    return {key: Value(value) for key, value in flat.items()}


def _differences(a: Mapping[str, Value | None], b: Mapping[str, Value | None]) -> tuple[Difference, ...]:
    found = [Difference(name, a.get(name), b.get(name)) for name in {**a, **b}]
    return tuple(one for one in found if not _equal(one.a, one.b))


def _equal(a: Value | None, b: Value | None) -> bool:
    """Whether the values are; where they came from does not matter."""
    return a is b if a is None or b is None else bool(a.value == b.value)


def _result(run: Run) -> tuple[list[list[float]] | None, str]:
    """The accuracies of a run in the words of the report, or why there are none."""
    group = group_runs([run]).sections[0].groups[0]
    return (group.matrices[0], "") if group.matrices else (None, group.problems[0].reason)


Matrix = Sequence[Sequence[float]] | None


def _accuracy(a: Run, b: Run, matrix_a: Matrix, matrix_b: Matrix) -> Iterator[Measured]:
    """Stage by stage for one chain; for two, on the domains of both: when each was new, and at the end."""
    if a.domains == b.domains:
        for stage, after in enumerate(a.domains):
            cells = enumerate(a.domains)
            yield Measured(
                after, tuple(Number(d, _cell(matrix_a, stage, i), _cell(matrix_b, stage, i)) for i, d in cells)
            )
        return
    shared = [(domain, a.domains.index(domain), b.domains.index(domain)) for domain in a.domains if domain in b.domains]
    if shared:
        own = tuple(Number(d, _cell(matrix_a, i, i), _cell(matrix_b, j, j)) for d, i, j in shared)
        end = tuple(Number(d, _cell(matrix_a, -1, i), _cell(matrix_b, -1, j)) for d, i, j in shared)
        yield from (Measured("its own stage", own), Measured("the last stage", end))


def _experts(a: Run, b: Run) -> Iterator[Expert]:
    """The experts for the domains of both runs, if one of them is of a domain bank."""
    if not (a.routing() or b.routing()):
        return
    for domain in (domain for domain in a.domains if domain in b.domains):
        accuracy, found = zip(_expert(a, domain), _expert(b, domain), strict=True)
        yield Expert(domain, Number("accuracy", *accuracy), Number("found", *found))


def _expert(run: Run, domain: str) -> tuple[float | None, float | None]:
    sent = run.routing().get(domain)
    if sent is None:
        return None, None
    return run.expert_accuracy(domain), sent.experts[sent.own] if sent.own else None


def _cell(matrix: Matrix, stage: int, domain: int) -> float | None:
    return None if matrix is None else matrix[stage][domain]


def _summary(matrix: Matrix) -> dict[str, float | None]:
    return dict.fromkeys(metrics.MEASURES) if matrix is None else metrics.summary(matrix)


def _cost(run: Run) -> dict[str, float | None]:
    """What an epoch of a run took; nothing for a method without epochs."""
    timing = run.timing
    return {
        "seconds per epoch": seconds_per_epoch(timing),
        "images per second": images_per_second(timing),
        "peak MiB of the process": max(facts["peak_bytes"] for facts in timing) / 2**20 if timing else None,
    }


def _numbers(a: Mapping[str, float | None], b: Mapping[str, float | None]) -> tuple[Number, ...]:
    """The numbers that at least one of the runs has."""
    found = (Number(name, a[name], b[name]) for name in a)
    return tuple(one for one in found if one.a is not None or one.b is not None)


def _json(number: Number) -> Json:
    return {"name": number.name, "a": number.a, "b": number.b, "difference": number.difference}
