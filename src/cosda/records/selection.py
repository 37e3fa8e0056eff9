"""Which epoch of a stage is measured and handed on: the rules, and how good each would have been. No torch.

Every epoch's scores are in the records, so a finished run can be looked at under any rule. `last` and the validators
use no label; `oracle` uses the target's test labels and is an upper bound, nothing that can be had in practice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cosda.errors import CosdaError, nearest
from cosda.records.run import Run
from cosda.validators import VALIDATORS


def rules() -> tuple[str, ...]:
    """All rules by name: the last epoch, the validators, and the oracle."""
    return ("last", *VALIDATORS, "oracle")


def check_rule(rule: str) -> str:
    """The rule, if there is one of that name."""
    if rule not in rules():
        raise CosdaError(f"unknown selection rule '{rule}': use {', '.join(rules())}.{nearest(rule, rules())}")
    return rule


@dataclass(frozen=True)
class Candidate:
    """The model of one epoch: its accuracy on the stage's target, if that can be measured, and its scores."""

    epoch: int
    accuracy: float | None
    scores: Mapping[str, float]

    def worth(self, rule: str) -> float | None:
        """What the rule makes of it, the more the better; None where the records do not say."""
        if rule == "last":
            return self.epoch
        return self.accuracy if rule == "oracle" else self.scores.get(rule)


@dataclass(frozen=True)
class Judgement:
    """How well a rule chose within a stage."""

    rule: str
    epoch: int
    regret: float | None  # best accuracy of any epoch minus that of the chosen one
    correlation: float | None  # Spearman's, of scores and accuracies over the epochs


def candidates(run: Run, stage: int) -> list[Candidate]:
    """The finished epochs of a stage."""
    target = run.domains[stage]
    accuracy = {
        r["epoch"]: run.accuracy(r) for r in run.of("accuracy", stage=stage, domain=target) if r["epoch"] is not None
    }
    scores = {r["epoch"]: r["scores"] for r in run.of("validation", stage=stage)}
    return [
        Candidate(r["epoch"], accuracy.get(r["epoch"]), scores.get(r["epoch"], {})) for r in run.of("loss", stage=stage)
    ]


def choose(rule: str, found: Sequence[Candidate]) -> Candidate:
    """The candidate that a rule prefers, of candidates in the order of their epochs."""
    check_rule(rule)
    worths = [candidate.worth(rule) for candidate in found]
    if not found or any(worth is None for worth in worths):
        missing = "no epoch" if not found else f"no '{rule}' for some epochs"
        raise CosdaError(
            f"the records have {missing}, so the rule '{rule}' cannot choose. Run again with this version."
        )
    chosen = found[0]
    for candidate in found[1:]:
        if prefers(candidate.worth(rule), chosen.worth(rule)):
            chosen = candidate
    return chosen


def prefers(worth: float | None, best: float | None) -> bool:
    """Whether a later epoch takes the place of the best one so far: of equals the later, because it has seen more."""
    assert worth is not None
    assert best is not None
    return worth >= best


def judge(run: Run, stage: int) -> list[Judgement]:
    """Every rule that the records of a stage allow."""
    found = candidates(run, stage)
    judged = []
    for rule in rules():
        if not found or any(candidate.worth(rule) is None for candidate in found):
            continue
        chosen = choose(rule, found)
        accuracies = [c.accuracy for c in found if c.accuracy is not None]
        whole = len(accuracies) == len(found)
        regret = max(accuracies) - chosen.accuracy if whole and chosen.accuracy is not None else None
        correlation = None
        if whole and rule in VALIDATORS:
            correlation = spearman([c.scores[rule] for c in found], accuracies)
        judged.append(Judgement(rule, chosen.epoch, regret, correlation))
    return judged


def reselect(run: Run, rule: str) -> Run:
    """A run with one target as it would be under another rule.

    A chain of several targets cannot be redrawn: its later stages began with the model that its own rule handed on.
    """
    check_rule(rule)
    if rule == run.config["select"]:
        return run
    if len(run.domains) > 2:
        raise CosdaError(
            f"a chain of several targets hands models on by rule '{run.config['select']}'; "
            f"to see it under another one, run it with --select {rule}"
        )
    carry = next((r["rule"] for r in run.of("carried", stage=1)), "last")
    if carry != "last":
        raise CosdaError(
            f"what the run hands on is not the model of an epoch (carry '{carry}'), and only those were measured after "
            f"each epoch; to see it under another rule, run it with --select {rule}"
        )
    found = candidates(run, 1)
    if not found:  # nothing was trained, so there is nothing to choose
        return replace(run, config={**run.config, "select": rule})
    chosen = choose(rule, found)
    measured = {r["domain"]: r for r in run.of("accuracy", stage=1, epoch=chosen.epoch)}
    if any(name not in measured for name in run.domains):
        raise CosdaError("its records have no accuracy of the source after each epoch; run it again to see other rules")
    kept = [r for r in run.records if not (r.get("stage") == 1 and _speaks_of_the_chosen(r))]
    named = {"kind": "chosen", "stage": 1, "rule": rule, "epoch": chosen.epoch}
    records = (*kept, named, *({**measured[name], "epoch": None} for name in run.domains))
    return replace(run, config={**run.config, "select": rule}, records=records)


def _speaks_of_the_chosen(record: Mapping[str, Any]) -> bool:
    """Whether a record is about the model handed on, and not about an epoch."""
    return record["kind"] in ("chosen", "confusion", "embedding") or (
        record["kind"] in ("accuracy", "alternative") and record["epoch"] is None
    )


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Rank correlation; None where one of both never changes."""
    a, b = _ranks(first), _ranks(second)
    mean = (len(a) + 1) / 2
    across = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    own = sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)
    return across / math.sqrt(own) if own else None


def _ranks(values: Sequence[float]) -> list[float]:
    """1 for the smallest; equals share the mean of their places."""
    ordered = sorted(values)
    return [ordered.index(v) + (ordered.count(v) + 1) / 2 for v in values]
