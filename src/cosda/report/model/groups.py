"""Runs -> sections and groups: which runs are seeds of one method, and what may be compared.

A *section* holds what may be compared: one benchmark with one data fingerprint, chain, protocol, headline accuracy and
selection rule. A *group* in it holds the runs of one method over its seeds: the same label and the same settings. A run
without numbers keeps its place, with the reason. Values are fractions, never percent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cosda import metrics
from cosda.errors import CosdaError
from cosda.records.run import Run
from cosda.records.selection import check_rule, reselect
from cosda.report.model.names import Usual, group_names, identity, in_groups, usual_settings

# What reading a damaged config or record may raise.
DAMAGED = (AttributeError, IndexError, KeyError, TypeError, ValueError, ZeroDivisionError)
NOT_FINISHED = "no finished run"


@dataclass(frozen=True)
class Problem:
    """A run that gave no numbers."""

    run: Run
    reason: str

    def __str__(self) -> str:
        return f"seed {self.run.seed} ({self.run.path.name}): {self.reason}"


@dataclass(frozen=True)
class Group:
    """The runs of one method with one set of settings: its seeds."""

    name: str  # the label, and what sets it apart where two groups of a section have the same one
    runs: tuple[Run, ...]
    counted: tuple[Run, ...]  # those with numbers, by seed
    matrices: tuple[list[list[float]], ...]  # accuracy[stage][domain] of each counted run
    problems: tuple[Problem, ...]

    @property
    def seeds(self) -> str:
        """How many seeds have numbers, and of how many if not all: ``3`` or ``2 of 3``."""
        wanted = len({run.seed for run in self.runs})
        return str(wanted) if len(self.counted) == wanted else f"{len(self.counted)} of {wanted}"

    def mean_matrix(self) -> list[list[float]]:
        """``accuracy[stage][domain]``, the mean over the counted runs."""
        stages = zip(*self.matrices, strict=True)
        return [[metrics.mean(values) for values in zip(*stage, strict=True)] for stage in stages]

    def state(self, run: Run) -> str:
        """``finished``, or why the run is not counted."""
        return next((problem.reason for problem in self.problems if problem.run is run), "finished")


@dataclass(frozen=True)
class Section:
    """Groups that may be compared with each other."""

    benchmark: str
    domains: tuple[str, ...]
    protocol: str
    headline: str
    select: str
    fingerprint: str
    groups: tuple[Group, ...]

    @property
    def title(self) -> str:
        """Benchmark and chain in one line."""
        return f"{self.benchmark}: {' → '.join(self.domains)}"

    @property
    def finished(self) -> list[Group]:
        """The groups that have numbers."""
        return [group for group in self.groups if group.counted]

    @property
    def banks(self) -> list[Group]:
        """Those of them whose models are domain banks."""
        return [group for group in self.finished if group.counted[0].routing()]


@dataclass(frozen=True)
class GroupedRuns:
    """All runs of a report."""

    sections: tuple[Section, ...]
    left_out: tuple[Problem, ...]  # runs that cannot be read, or whose config does not say where they belong


def group_runs(runs: Sequence[Run], select: str | None = None) -> GroupedRuns:
    """Put runs into sections and groups.

    Args:
        runs: finished and unfinished runs, in any order.
        select: show single-target runs as this selection rule would have chosen; None: each under its own rule.

    Raises:
        CosdaError: there is no such rule.
    """
    if select is not None:
        check_rule(select)
    places: dict[tuple[Any, ...], list[Run]] = {}
    left_out: list[Problem] = []
    refused: dict[Path, str] = {}  # runs that cannot be shown under the rule, and why
    for run in sorted(runs, key=lambda run: run.path.name):
        if run.damage and not run.config:
            left_out.append(Problem(run, run.damage))
            continue
        try:
            if select is not None:
                run, refused[run.path] = _under(select, run)
            place = _place(run)
            _ = run.label, run.seed, identity(run), list(run.config["classes"])
        except DAMAGED as error:
            left_out.append(Problem(run, f"damaged config.json: {_describe(error)}"))
        else:
            places.setdefault(place, []).append(run)
    groups = {place: in_groups(places[place]) for place in sorted(places)}
    families: dict[tuple[Any, ...], list[list[Run]]] = {}
    for place, found in groups.items():
        families.setdefault(_family(place), []).extend(found)
    usual = {family: usual_settings(found) for family, found in families.items()}
    sections = [_section(place, found, usual[_family(place)], refused) for place, found in groups.items()]
    return GroupedRuns(tuple(sections), tuple(left_out))


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
    """What two runs of a section have in common."""
    config = run.config
    words = (str(config[key]) for key in ("protocol", "headline", "select", "fingerprint"))
    return (str(config["benchmark"]), tuple(map(str, run.domains)), *words)


def _family(place: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sections whose groups are joined by name: all pairs of a benchmark, or all its chains of one length."""
    benchmark, domains, protocol, headline, select, _ = place
    return benchmark, len(domains), protocol, headline, select


def _section(place: tuple[Any, ...], groups: list[list[Run]], usual: Usual, refused: Mapping[Path, str]) -> Section:
    benchmark, domains, protocol, headline, select, fingerprint = place
    named = zip(group_names(groups, usual), groups, strict=True)
    found = tuple(_group(name, runs, refused) for name, runs in named)
    return Section(benchmark, domains, protocol, headline, select, fingerprint, found)


def _group(name: str, runs: list[Run], refused: Mapping[Path, str]) -> Group:
    ordered = sorted(runs, key=lambda run: (run.seed, run.path.name))
    counted: list[Run] = []
    matrices: list[list[list[float]]] = []
    problems: list[Problem] = []
    for run in ordered:
        matrix, reason = (None, refused[run.path]) if refused.get(run.path) else _matrix(run)
        twin = next((other for other in counted if other.seed == run.seed), None)
        if matrix is None:
            problems.append(Problem(run, reason))
        elif twin is not None:
            problems.append(Problem(run, f"seed {run.seed} is already counted from {twin.path.name}"))
        else:
            counted.append(run)
            matrices.append(matrix)
    return Group(name, tuple(ordered), tuple(counted), tuple(matrices), tuple(problems))


def _matrix(run: Run) -> tuple[list[list[float]] | None, str]:
    """The accuracies of a finished run, or the reason why there are none."""
    if run.damage:
        return None, f"damaged records: {run.damage}"
    try:
        if run.done is None:
            why = f"failed: {run.failure.splitlines()[0].rstrip('.')}" if run.failure else "not finished"
            return None, f"{why}: {_progress(run)}"
        matrix, routed = run.matrix(), run.routing()
    except DAMAGED as error:
        return None, f"damaged records: {_describe(error)}"
    if not matrix:
        return None, "accuracies of some stages or domains are missing from its records"
    if routed and set(routed) != set(run.domains):
        return None, "the routing of some domains is missing from its records"
    return matrix, ""


def _progress(run: Run) -> str:
    losses = list(run.of("loss"))
    if not losses:
        return "no epoch is recorded"
    stage, epochs = losses[-1]["stage"], losses[-1]["epoch"] + 1
    return f"it has {epochs} epoch{'s' * (epochs != 1)} of stage {stage} ({run.domains[stage]})"


def _describe(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)
