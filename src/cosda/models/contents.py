"""What a model folder holds, from its files alone: also of a network that only the user's code can build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cosda.errors import CosdaError
from cosda.models.architecture import Architecture
from cosda.models.experts import SOURCE, Stored
from cosda.models.folder import (
    ENCODER,
    HEAD,
    damaged,
    expert_file,
    graph_file,
    profile_file,
    read_description,
)
from cosda.models.graphs import FORMATS
from cosda.models.profile import DomainProfile
from cosda.preprocessing import Preprocessing


@dataclass(frozen=True)
class HeldDomain:
    """What a model folder holds of one domain."""

    domain: str
    images: int | None  # of its profile; 0 where that is made of BatchNorm statistics, None where there is none
    bits: int | None  # of each weight of its expert; None for the base
    bytes: int  # of its expert, or of the base's weights
    profile_bytes: int
    late: bool  # whether its profile is of features, for a bank whose encoder is frozen
    share: float  # of its expert's bytes in the base's
    method: str | None  # that made it; "source" for a model that was trained on labels, None where nobody knows
    began: str | None  # the domain from whose expert it began
    date: str | None


@dataclass(frozen=True)
class Contents:
    """What a model folder holds."""

    path: Path
    architecture: Architecture
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    domains: tuple[HeldDomain, ...]  # the base's first
    lineage: Sequence[Mapping[str, Any]]

    @property
    def bytes(self) -> int:
        """Of all weights, experts and profiles."""
        return sum(each.bytes + each.profile_bytes for each in self.domains)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "model": str(self.path),
            "architecture": self.architecture.as_json(),
            "classes": list(self.classes),
            "preprocessing": self.preprocessing.as_json(),
            "bytes": self.bytes,
            "domains": [asdict(each) for each in self.domains],
            "lineage": list(self.lineage),
        }


def read_contents(path: str | Path) -> Contents:
    """What a model folder holds; weights are not read.

    Raises:
        CosdaError: there is no model, or it is damaged.
    """
    path = Path(path).expanduser()
    description = read_description(path)
    return Contents(
        path,
        Architecture.from_json(description["architecture"], damaged(path)),
        tuple(description["classes"]),
        Preprocessing.from_json(description["preprocessing"], damaged(path)),
        _domains(path, description),
        list(description["lineage"]),
    )


def _domains(path: Path, description: Mapping[str, Any]) -> tuple[HeldDomain, ...]:
    hashes, lineage = description["sha256"], description["lineage"]
    graphs = (graph_file(format) for format in FORMATS)
    base = sum(_size(path / name) for name in (ENCODER, HEAD, *(name for name in graphs if name in hashes)))

    def held(number: int, name: str, bits: int | None, bytes: int, made: Mapping[str, Any]) -> HeldDomain:
        file = path / profile_file(number)
        known = file.name in hashes
        profile = DomainProfile.from_bytes(Stored(file, hashes[file.name]).read(), str(file)) if known else None
        return HeldDomain(
            name if profile is None else profile.name,
            None if profile is None else profile.images,
            bits,
            bytes,
            _size(file) if known else 0,
            profile is not None and profile.late,
            bytes / max(base, 1),
            made.get("method", made.get("step")),
            made.get("began"),
            made.get("date"),
        )

    alone = [
        step for step in lineage if step.get("step") in ("import", "source", "adapt") and step.get("carry") != "bank"
    ]
    domains = [held(0, SOURCE, None, base, alone[-1] if alone else {})]
    for number, expert in enumerate((description.get("experts") or {"experts": ()})["experts"], start=1):
        own = [step for step in lineage if step.get("step") == "adapt" and step.get("domain") == expert["domain"]]
        size = _size(path / expert_file(number))
        domains.append(held(number, expert["domain"], expert["bits"], size, own[-1] if own else {}))
    return tuple(domains)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise CosdaError(f"{path} cannot be read: {error.strerror or error}. Copy the model folder again.") from None
