"""The CoSDA paper's numbers, under this package's names; docs/published.md says where they come from."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

from cosda.records.run import Run

NETWORKS = {
    "office31": "ResNet-50",
    "officehome": "ResNet-50",
    "domainnet": "ResNet-50",
    "visda": "ResNet-101",
}
Key = tuple[str, tuple[str, ...], str]


@dataclass(frozen=True)
class Published:
    """What the paper prints of one method on one chain, as fractions; None where it prints nothing."""

    accuracy: float | None = None
    drop: float | None = None
    bwt: float | None = None
    classes: Mapping[str, Published] = field(default_factory=dict)

    def of(self, measure: str) -> float | None:
        """The paper's number of one of our measures: it calls the adaptation to a single target *accuracy*."""
        return {"adaptation": self.accuracy, "source_drop": self.drop, "bwt": self.bwt}.get(measure)


def published(benchmark: str, domains: Sequence[str], label: str) -> Published:
    """The paper's numbers of a method, such as ``cosda`` or ``cosda (no-mi)``, on a chain, source first."""
    found = _all().get((_plain(benchmark), tuple(map(_plain, domains)), label), {})
    classes = {name: _numbers(printed) for name, printed in found.items() if name != "all"}
    return _numbers(found.get("all", {}), classes)


def _numbers(printed: Mapping[str, float], classes: Mapping[str, Published] = MappingProxyType({})) -> Published:
    return Published(printed.get("accuracy"), printed.get("drop"), printed.get("bwt"), classes)


def label_of(run: Run) -> str:
    """How the published numbers call the method of a run: the paper has one variant of each."""
    ablation = run.config.get("ablation")
    return f"{run.config.get('method')} ({ablation})" if ablation else str(run.config.get("method"))


@cache
def _all() -> dict[Key, dict[str, dict[str, float]]]:
    """(benchmark, chain, label) -> class -> measure -> fraction."""
    numbers: dict[Key, dict[str, dict[str, float]]] = {}
    text = Path(__file__).with_name("published.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        key = (line["benchmark"], tuple(map(_plain, line["chain"].split(">"))), line["method"])
        of_class = numbers.setdefault(key, {}).setdefault(line["class"], {})
        of_class[line["measure"]] = float(f"{line['value']}e-2")  # a division would add a rounding error
    return numbers


def _plain(name: str) -> str:
    """``Real World``, ``Real_World`` and ``RealWorld`` are one."""
    return "".join(letter for letter in name.lower() if letter.isalnum())
