"""Which runs are one group, and what it is called: its label, and the settings in which it differs from the others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from cosda.files import flatten
from cosda.records.run import Run
from cosda.report.model.settings import show

BASELINES = ("source", "bn")  # methods that stand at the top of every table, in this order

# Label -> setting -> the value that names of the label do not mention.
Usual = dict[str, dict[str, object]]
_NO_VALUE = object()


def rank(run: Run) -> int:
    """The place of a run's method in every table: baselines come first."""
    method = run.config.get("method")
    return BASELINES.index(method) if method in BASELINES else len(BASELINES)


def identity(run: Run) -> dict[str, Any]:
    """What must be equal for two runs to be seeds of the same group."""
    return {key: show(value) for key, value in flatten(run.config["settings"]).items()}


def in_groups(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs of each group, in the order of the tables."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault((rank(run), run.label, json.dumps(identity(run), sort_keys=True)), []).append(run)
    return [groups[key] for key in sorted(groups)]


def usual_settings(groups: Sequence[Sequence[Run]]) -> Usual:
    """For each label the values that most of its groups have; between equals, those that most of all groups have.

    Where two are equal there too there is none, and every group says its own.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    everywhere: Counter[tuple[str, object]] = Counter()
    for runs in groups:
        own = identity(runs[0])
        found.setdefault(runs[0].label, []).append(own)
        everywhere.update(own.items())
    usual: Usual = {}
    for label, identities in found.items():
        usual[label] = {}
        for key in {key for own in identities for key in own}:
            times = Counter(own.get(key) for own in identities)
            frequency = {value: (count, everywhere[key, value]) for value, count in times.items()}
            first, *others = sorted(frequency, key=lambda value: frequency[value], reverse=True)
            usual[label][key] = _NO_VALUE if others and frequency[others[0]] == frequency[first] else first
    return usual


def group_names(groups: Sequence[Sequence[Run]], usual: Usual) -> list[str]:
    """The label of each group, with the settings that are not the usual ones; no two names are equal."""
    names: list[str] = []
    for runs in groups:
        label, own = runs[0].label, identity(runs[0])
        differing = [key for key, value in sorted(usual[label].items()) if own.get(key) != value]
        words = [f"{key}={own.get(key, 'unset')}" for key in differing[:3]] + ["…"] * (len(differing) > 3)
        name = f"{label} [{', '.join(words)}]" if words else label
        same = sum(other == name or other.startswith(f"{name} #") for other in names)
        names.append(f"{name} #{same + 1}" if same else name)
    return names
