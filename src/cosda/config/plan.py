"""The resolved settings of a run: all that the runner reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from cosda.config.request import Data
from cosda.config.schema import (
    SECTIONS,
    AdaptSettings,
    DataSettings,
    EdgeSettings,
    NetworkSettings,
    SourceSettings,
)
from cosda.files import Json, digest, safe_name
from cosda.methods import METHODS, Method
from cosda.settings import build

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """Everything that decides the numbers of a run."""

    data: Data
    method: str
    variant: str | None
    ablation: str | None
    seed: int
    select: str  # a rule of cosda.records.selection
    model: str | None  # the key of a given source model; None where it is trained from `source`
    settings: Mapping[str, Mapping[str, Any]]  # section -> key -> value
    stages: Mapping[str, Mapping[str, Mapping[str, Any]]]  # target -> section -> key -> value
    origins: Mapping[str, str]

    @property
    def source(self) -> str:
        """The first domain of the chain."""
        return self.data.domains[0]

    @property
    def targets(self) -> tuple[str, ...]:
        """The others, in order."""
        return self.data.domains[1:]

    @property
    def label(self) -> str:
        """How tables call the run."""
        first = next(iter(METHODS.find(self.method).variants), None)
        variant = self.variant if self.variant != first else None
        extra = [word for word in (variant, self.ablation, self._carry) if word]
        return f"{self.method} ({', '.join(extra)})" if extra else self.method

    @property
    def _carry(self) -> str:
        text = str(self.settings["adapt"]["carry"])
        rule = build(AdaptSettings, {"carry": text}, "adapt").carry_rule
        name = text.partition("=")[0]
        return "" if name == "last" else " ".join(["carry", name, *([rule.label] if rule.label else [])])

    def as_json(self) -> Json:
        """What config.json holds."""
        facts = dataclasses.asdict(self)
        return {"kind": "adapt", "label": self.label, **facts.pop("data"), **facts}

    @property
    def name(self) -> str:
        """The name of the run folder; where a value came from does not matter for it."""
        facts = self.as_json()
        del facts["origins"]
        words = [safe_name(self.data.benchmark), self.method, self.ablation, f"s{self.seed}", digest(facts)]
        return "-".join(word for word in words if word)

    @property
    def input(self) -> DataSettings:
        """How images become inputs."""
        return self._section(DataSettings)

    @property
    def network(self) -> NetworkSettings:
        """What the network is made of."""
        return self._section(NetworkSettings)

    @property
    def source_training(self) -> SourceSettings:
        """How the source model is trained."""
        return self._section(SourceSettings)

    @property
    def edges(self) -> EdgeSettings:
        """Where edges come from."""
        return self._section(EdgeSettings)

    def adapt(self, target: str) -> AdaptSettings:
        """How the model adapts to a target."""
        return self._section(AdaptSettings, target)

    def make_method(self, target: str | None = None) -> Method:
        """A new method object with the settings of this run and target."""
        return build(METHODS.find(self.method), self._values("method", target), self.method)

    def _section(self, cls: type[T], target: str | None = None) -> T:
        name = next(name for name, known in SECTIONS.items() if known is cls)
        return build(cls, self._values(name, target), name)

    def _values(self, section: str, target: str | None) -> dict[str, Any]:
        """The values of a section, with what is special to a target."""
        return {**self.settings[section], **self.stages.get(target or "", {}).get(section, {})}
