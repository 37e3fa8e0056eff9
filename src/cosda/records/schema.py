"""What a run folder must hold, by type: all that reports, estimates and comparisons rely on. No torch.

Files come from other versions, other machines and broken disks. A run that does not fit is named and left out, and
never an error of those beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from cosda.errors import CosdaError
from cosda.files import Json
from cosda.settings import Range, typed

Count = Annotated[int, Range(0, 2**53)]
Amount = Annotated[float, Range(0)]
Sections = Mapping[str, Mapping[str, Any]]


class Config(TypedDict):
    """config.json of the training of a source model."""

    kind: Literal["adapt", "source"]
    benchmark: str
    fingerprint: str
    headline: Literal["top1", "per-class"]
    classes: tuple[str, ...]
    seed: int
    settings: Sections


class _Some(TypedDict, total=False):
    ablation: str | None
    variant: str | None
    stages: Mapping[str, Sections]
    origins: Mapping[str, str]


class RunConfig(Config, _Some):
    """config.json of a run."""

    label: str
    method: str
    protocol: str
    select: str
    domains: tuple[str, ...]


class _Record(TypedDict):
    kind: str
    stage: Count


class Skipped(_Record):
    """Images that cannot be read."""

    domain: str
    images: Mapping[str, str]


class _Epoch(TypedDict, total=False):
    steps: Count
    images: Count
    passes: Amount
    rates: Mapping[str, float]


class Loss(_Record, _Epoch):
    """An epoch."""

    epoch: Count
    terms: Mapping[str, float]


class Accuracy(_Record):
    """What was classified correctly."""

    epoch: Count | None
    domain: str
    split: str
    images: tuple[Count, ...]
    correct: tuple[Count, ...]


class Alternative(Accuracy):
    """The same with other BatchNorm statistics."""

    statistics: str


class Validation(_Record):
    """Label-free scores."""

    epoch: Count
    images: Count
    scores: Mapping[str, float]


class Chosen(_Record):
    """The epoch that a stage handed on."""

    rule: str
    epoch: Count | None


class Carried(_Record):
    """What the carry rule made of it."""

    rule: str
    share: float


class Stored(_Record):
    """What is too large for a line."""

    file: str


class Routing(_Record):
    """Where a bank sent the images of a domain."""

    domain: str
    known: tuple[str, ...]
    sent: tuple[Count, ...]
    mixed: Count
    unknown: Count
    crossfitted: bool


class Reached(TypedDict):
    """How far a run has come, as a line of timing.jsonl tells."""

    stage: Count
    epoch: Count


class Timing(Reached):
    """A line of timing.jsonl."""

    seconds: Amount
    images: Count
    peak_bytes: Count


RECORDS: Mapping[str, type] = {
    "skipped": Skipped,
    "loss": Loss,
    "accuracy": Accuracy,
    "alternative": Alternative,
    "expert": Accuracy,
    "validation": Validation,
    "chosen": Chosen,
    "carried": Carried,
    "embedding": Stored,
    "confusion": Stored,
    "routing": Routing,
}


def check_config(config: Json) -> None:
    """An error for a config that does not say what a run is.

    Raises:
        CosdaError: the message begins with the name of the file.
    """
    where = "config.json is damaged"
    typed(RunConfig if config.get("kind") == "adapt" else Config, config, where)
    domains = config.get("domains", ["source"])
    if not domains or len(set(domains)) < len(domains):
        raise CosdaError(f"{where}: a chain has at least one domain, and each once.")


def check_records(config: Json, records: Sequence[Json], timing: Sequence[Json]) -> None:
    """An error for a fact that is not what its kind says, or does not fit the config; other kinds are let be.

    Raises:
        CosdaError: the message begins with the name of the file and the line.
    """
    for number, record in enumerate(records, start=1):
        where = f"records.jsonl, line {number}, is damaged"
        typed(RECORDS.get(str(record.get("kind")), _Record), record, where)
        _check_place(record, config, where)
        if "correct" in record and "split" in record:
            _check_counts(record["images"], record["correct"], len(config["classes"]), where)
        if record["kind"] == "routing" and (len(record["known"]) != len(record["sent"]) or not sum(record["sent"])):
            raise CosdaError(f"{where}: known and sent do not fit each other.")
    for number, facts in enumerate(timing, start=1):
        where = f"timing.jsonl, line {number}, is damaged"
        typed(Timing, facts, where)
        _check_place(facts, config, where)


def _check_place(facts: Json, config: Json, where: str) -> None:
    domains = config.get("domains", [config.get("domain")])
    if facts["stage"] >= len(domains):
        raise CosdaError(f"{where}: stage = {facts['stage']} is not possible; there are {len(domains)} domains.")
    if facts.get("domain", domains[0]) not in domains:
        raise CosdaError(f"{where}: the chain has no domain of this name.")


def _check_counts(images: Sequence[int], correct: Sequence[int], classes: int, where: str) -> None:
    if not len(images) == len(correct) == classes:
        raise CosdaError(f"{where}: there are {classes} classes, and counts of {len(images)} and {len(correct)}.")
    if not sum(images) or any(right > count for right, count in zip(correct, images, strict=True)):
        raise CosdaError(f"{where}: more images are correct than there are, or there are zero images.")
