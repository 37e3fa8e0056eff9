"""Records -> rows: plain data that every writer (Markdown, CSV, HTML) shows in its own way.

A *section* holds what may be compared: one benchmark with one data fingerprint, chain, protocol, headline
accuracy and selection rule. A *row* is one way of adapting: the runs of all seeds with the same label and the
same settings. A run without numbers keeps its place, with the reason. Values are fractions, never percent.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cosda import metrics
from cosda.errors import CosdaError
from cosda.records.run import Run
from cosda.records.selection import check_rule, reselect
from cosda.report.columns import Column, columns_of
from cosda.report.settings import flatten, show

YARDSTICKS = ("source", "bn")  # methods that stand at the top of every table, in this order
# What reading a damaged config or record may raise.
DAMAGED = (AttributeError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError)

# Label -> setting -> the value that rows of the label do not mention.
Usual = dict[str, dict[str, object]]


@dataclass(frozen=True)
class Cell:
    """A number over the seeds; without any value, the reason why."""

    values: tuple[float, ...]
    reason: str = ""

    @property
    def mean(self) -> float | None:
        """Mean over the seeds."""
        return metrics.mean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """Sample standard deviation over the seeds; None where a single seed cannot tell."""
        return metrics.spread(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Problem:
    """A run that gave no numbers."""

    run: Run
    reason: str


@dataclass(frozen=True)
class Row:
    """The runs of one label and one group of settings."""

    name: str  # the label, and what sets it apart where two rows of a section have the same one
    runs: tuple[Run, ...]
    counted: tuple[Run, ...]  # those behind the cells, by seed
    matrices: tuple[list[list[float]], ...]  # accuracy[stage][domain] of each counted run
    cells: tuple[Cell, ...]  # in the order of the section's columns
    problems: tuple[Problem, ...]

    def mean_matrix(self) -> list[list[float]]:
        """``accuracy[stage][domain]``, the mean over the counted runs."""
        stages = zip(*self.matrices, strict=True)
        return [[metrics.mean(cell) for cell in zip(*stage, strict=True)] for stage in stages]


@dataclass(frozen=True)
class Section:
    """Rows that may be compared with each other."""

    benchmark: str
    domains: tuple[str, ...]
    protocol: str
    headline: str
    select: str
    fingerprint: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        """Benchmark and chain in one line."""
        return f"{self.benchmark}: {' → '.join(self.domains)}"


@dataclass(frozen=True)
class Tables:
    """All that a report shows in numbers."""

    sections: tuple[Section, ...]
    left_out: tuple[Problem, ...]  # runs that cannot be read, or whose config does not say where they belong


def build(runs: Sequence[Run], select: str | None = None) -> Tables:
    """Group runs into sections and rows; under another selection rule, if ``select`` names one."""
    if select is not None:
        check_rule(select)
    places: dict[tuple[Any, ...], list[Run]] = {}
    left_out: list[Problem] = []
    refused: dict[Path, str] = {}  # runs that cannot be seen under the rule, and why
    for run in sorted(runs, key=lambda run: run.path.name):
        if run.damage:
            left_out.append(Problem(run, run.damage))
            continue
        try:
            if select is not None:
                run, refused[run.path] = _under(select, run)
            place = _place(run)
            _ = run.label, run.seed, _identity(run)
        except DAMAGED as error:
            left_out.append(Problem(run, f"damaged config.json: {_describe(error)}"))
        else:
            places.setdefault(place, []).append(run)
    groups = {place: _groups(places[place]) for place in sorted(places)}
    families: dict[tuple[Any, ...], list[list[Run]]] = {}
    for place, found in groups.items():
        families.setdefault(_family(place), []).extend(found)
    usual = {family: _usual_settings(found) for family, found in families.items()}
    sections = [_section(place, found, usual[_family(place)], refused) for place, found in groups.items()]
    return Tables(tuple(sections), tuple(left_out))


def _under(rule: str, run: Run) -> tuple[Run, str]:
    """A run under a rule, and if its records do not allow it, the reason: it then keeps its place without numbers."""
    relabelled = replace(run, config={**run.config, "select": rule})
    if run.done is None or run.config["select"] == rule:
        return relabelled, ""
    try:
        return reselect(run, rule), ""
    except CosdaError as error:
        return relabelled, str(error).removesuffix(".")
    except DAMAGED as error:
        return relabelled, f"damaged records: {_describe(error)}"


def _place(run: Run) -> tuple[Any, ...]:
    config = run.config
    words = (str(config[key]) for key in ("protocol", "headline", "select", "fingerprint"))
    return (str(config["benchmark"]), tuple(map(str, run.domains)), *words)


def _family(place: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sections whose rows are joined by name: all pairs of a benchmark, or all its chains of one length."""
    benchmark, domains, protocol, headline, select, _ = place
    return benchmark, len(domains), protocol, headline, select


def _groups(runs: list[Run]) -> list[list[Run]]:
    """The runs of each row, in the order of the rows."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault((rank(run), run.label, json.dumps(_identity(run), sort_keys=True)), []).append(run)
    return [groups[key] for key in sorted(groups)]


def _section(place: tuple[Any, ...], groups: list[list[Run]], usual: Usual, refused: Mapping[Path, str]) -> Section:
    benchmark, domains, protocol, headline, select, fingerprint = place
    columns = columns_of(domains)
    names = _names(groups, usual)
    rows = tuple(_row(name, group, columns, refused) for name, group in zip(names, groups, strict=True))
    return Section(benchmark, domains, protocol, headline, select, fingerprint, columns, rows)


def rank(run: Run) -> int:
    """The place of a run's method in every table: baselines come first."""
    method = run.config.get("method")
    return YARDSTICKS.index(method) if method in YARDSTICKS else len(YARDSTICKS)


def _identity(run: Run) -> dict[str, Any]:
    """What must be equal for two runs to be seeds of the same row."""
    return {key: show(value) for key, value in flatten(run.config["settings"]).items()}


def _names(groups: list[list[Run]], usual: Usual) -> list[str]:
    """The labels, where one label has several rows with the settings in which a row differs from most of them."""
    names: list[str] = []
    for group in groups:
        label, identity = group[0].label, _identity(group[0])
        differing = [key for key, value in sorted(usual[label].items()) if identity.get(key) != value]
        words = [f"{key}={identity.get(key, 'unset')}" for key in differing[:3]] + ["…"] * (len(differing) > 3)
        name = f"{label} [{', '.join(words)}]" if words else label
        same = sum(other == name or other.startswith(f"{name} #") for other in names)
        names.append(f"{name} #{same + 1}" if same else name)
    return names


def _usual_settings(groups: list[list[Run]]) -> Usual:
    """For each label the values that most of its rows have; between equals, those that most rows of all labels have.

    Where two are equal there too there is none, and every row says its own.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    everywhere: Counter[tuple[str, object]] = Counter()
    for group in groups:
        identity = _identity(group[0])
        rows.setdefault(group[0].label, []).append(identity)
        everywhere.update(identity.items())
    usual: Usual = {}
    for label, found in rows.items():
        usual[label] = {}
        for key in {key for identity in found for key in identity}:
            own = Counter(identity.get(key) for identity in found)
            frequency = {value: (times, everywhere[key, value]) for value, times in own.items()}
            first, *others = sorted(frequency, key=lambda value: frequency[value], reverse=True)
            usual[label][key] = _NOTHING if others and frequency[others[0]] == frequency[first] else first
    return usual


_NOTHING = object()


def _row(name: str, runs: list[Run], columns: tuple[Column, ...], refused: Mapping[Path, str]) -> Row:
    counted: list[Run] = []
    matrices: list[list[list[float]]] = []
    problems: list[Problem] = []
    for run in sorted(runs, key=lambda run: (run.seed, run.path.name)):
        matrix, reason = (None, refused[run.path]) if refused.get(run.path) else _matrix(run)
        twin = next((other for other in counted if other.seed == run.seed), None)
        if matrix is None:
            problems.append(Problem(run, reason))
        elif twin is not None:
            problems.append(Problem(run, f"seed {run.seed} is already counted from {twin.path.name}"))
        else:
            counted.append(run)
            matrices.append(matrix)
    return Row(
        name=name,
        runs=tuple(sorted(runs, key=lambda run: (run.seed, run.path.name))),
        counted=tuple(counted),
        matrices=tuple(matrices),
        cells=tuple(_cell(column, matrices) for column in columns),
        problems=tuple(problems),
    )


def _cell(column: Column, matrices: list[list[list[float]]]) -> Cell:
    if not matrices:
        return Cell((), "no finished run")
    values = tuple(v for matrix in matrices if (v := column.compute(matrix)) is not None)
    return Cell(values) if values else Cell((), column.undefined)


def _matrix(run: Run) -> tuple[list[list[float]] | None, str]:
    """The accuracies of a finished run, or the reason why there are none."""
    try:
        if run.done is None:
            why = f"failed: {run.failure.splitlines()[0].rstrip('.')}" if run.failure else "not finished"
            return None, f"{why}: {_progress(run)}"
        matrix = run.matrix()
    except DAMAGED as error:
        return None, f"damaged records: {_describe(error)}"
    if not matrix:
        return None, "accuracies of some stages or domains are missing from its records"
    return matrix, ""


def _progress(run: Run) -> str:
    losses = list(run.of("loss"))
    if not losses:
        return "no epoch is recorded"
    stage, epochs = losses[-1]["stage"], losses[-1]["epoch"] + 1
    return f"it has {epochs} epoch{'s' * (epochs != 1)} of stage {stage} ({run.domains[stage]})"


def _describe(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)
