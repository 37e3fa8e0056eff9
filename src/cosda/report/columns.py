"""The numbers that a report shows of a chain, each with its meaning in plain words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cosda import metrics


@dataclass(frozen=True)
class Column:
    """One number of a run, and what a reader needs to know of it."""

    group: str  # "summary", "final" or "adapted": columns that stand in one table
    measure: str  # its name for programs
    title: str
    meaning: str
    compute: Callable[[metrics.Matrix], float | None]
    domain: str = ""  # of the columns that speak of a single domain
    higher_is_better: bool = True
    undefined: str = ""  # why some chains have no such number


SUMMARY = (
    Column(
        "summary",
        "average",
        "Average",
        "Mean accuracy over all domains of the chain, source included, after the last stage: "
        "how good the final model is everywhere it has been.",
        metrics.average_accuracy,
    ),
    Column(
        "summary",
        "adaptation",
        "Adaptation",
        "Mean over the targets of the accuracy right after adapting to each: how well the method learns.",
        metrics.adaptation,
        undefined="the chain has no target",
    ),
    Column(
        "summary",
        "source_drop",
        "Source drop",
        "Accuracy on the source before any adaptation minus after the last stage, in percentage points. "
        "Positive means forgetting; lower is better.",
        metrics.source_drop,
        higher_is_better=False,
    ),
    Column(
        "summary",
        "harmonic",
        "Harmonic mean",
        "Harmonic mean of adaptation and of the accuracy that is left on the source after the last stage: high only "
        "where both are.",
        metrics.harmonic_mean,
        undefined="the chain has no target",
    ),
    Column(
        "summary",
        "bwt",
        "BWT",
        "Backward transfer: the mean, over all domains but the last one, of accuracy at the end minus "
        "accuracy right after that domain's own stage, in percentage points. The source counts as the first "
        "domain. "
        "Negative means forgetting; higher is better.",
        metrics.backward_transfer,
        undefined="the chain has no earlier domain",
    ),
    Column(
        "summary",
        "bwt_targets",
        "BWT, targets",
        "Backward transfer averaged over the earlier targets alone, without the source.",
        lambda accuracy: metrics.backward_transfer(accuracy, include_source=False),
        undefined="needs a chain of two targets or more",
    ),
    Column(
        "summary",
        "forgetting",
        "Forgetting",
        "Mean, over all domains but the last one, of the best accuracy ever reached since that domain's own "
        "stage minus the accuracy at the end, in percentage points. Lower is better.",
        metrics.forgetting,
        higher_is_better=False,
        undefined="the chain has no earlier domain",
    ),
    Column(
        "summary",
        "forward_transfer",
        "Forward transfer",
        "Mean, over the targets after the first, of the accuracy just before adapting to it minus the source "
        "model's, in percentage points: what earlier targets teach about the later ones.",
        metrics.forward_transfer,
        undefined="needs a chain of two targets or more",
    ),
)


def columns_of(domains: Sequence[str]) -> tuple[Column, ...]:
    """Every number that is shown of a chain."""
    final = [
        Column("final", "final", name, f"Accuracy on {name} after the last stage.", _entry(-1, i), name)
        for i, name in enumerate(domains)
    ]
    adapted = [
        Column("adapted", "adapted", name, f"Accuracy on {name} right after adapting to it.", _entry(i, i), name)
        for i, name in enumerate(domains)
    ]
    return (*SUMMARY, *final, *adapted[1:])  # nothing is adapted to the source


def _entry(stage: int, domain: int) -> Callable[[metrics.Matrix], float]:
    return lambda accuracy: accuracy[stage][domain]
