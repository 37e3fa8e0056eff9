"""Pure functions of an accuracy matrix, and the measures that every run, log and report shows.

``accuracy[stage][domain]`` holds the accuracy on each domain of the chain after each stage, in chain order:
stage 0 is the source model and domain 0 the source. The paper's R (row = domain, column = stage, both
counted from 1) is the transpose: R[i, j] = accuracy[j - 1][i - 1]. Values are fractions, never percent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from cosda.registry import Registry

Matrix = Sequence[Sequence[float]]


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean of at least one value."""
    if not values:
        raise ValueError("the mean of no values is not defined")
    return sum(values) / len(values)


def spread(values: Sequence[float]) -> float:
    """Sample standard deviation; 0 for a single value."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.sqrt(sum((v - centre) ** 2 for v in values) / (len(values) - 1))


def _square(accuracy: Matrix) -> int:
    size = len(accuracy)
    if size == 0 or any(len(row) != size for row in accuracy):
        raise ValueError(f"expected a square matrix of stages by domains, got rows of {[len(r) for r in accuracy]}")
    return size


def backward_transfer(accuracy: Matrix, include_source: bool = True) -> float | None:
    """BWT = mean over earlier domains of (accuracy at the end - accuracy right after its own stage).

    The source counts as the first domain, as the paper's numbers require; ``include_source=False`` averages
    over the targets alone. None where no earlier domain is left to average over.
    """
    last = _square(accuracy) - 1
    changes = [accuracy[last][i] - accuracy[i][i] for i in range(0 if include_source else 1, last)]
    return mean(changes) if changes else None


def forgetting(accuracy: Matrix) -> float | None:
    """Mean over earlier domains of (best accuracy at any stage from its own on - accuracy at the end)."""
    last = _square(accuracy) - 1
    losses = [max(accuracy[s][i] for s in range(i, last + 1)) - accuracy[last][i] for i in range(last)]
    return mean(losses) if losses else None


def forward_transfer(accuracy: Matrix) -> float | None:
    """Mean over targets of (accuracy just before its own stage - accuracy of the source model)."""
    size = _square(accuracy)
    gains = [accuracy[i - 1][i] - accuracy[0][i] for i in range(2, size)]
    return mean(gains) if gains else None


def source_drop(accuracy: Matrix) -> float:
    """Accuracy on the source before adaptation minus after the last stage; positive means forgetting."""
    return accuracy[0][0] - accuracy[_square(accuracy) - 1][0]


def adaptation(accuracy: Matrix) -> float | None:
    """Mean over targets of the accuracy right after adapting to it: the diagonal without the source."""
    size = _square(accuracy)
    return mean([accuracy[i][i] for i in range(1, size)]) if size > 1 else None


def harmonic_mean(accuracy: Matrix) -> float | None:
    """2as / (a + s) of adaptation a and the accuracy s that is left on the source: high only where both are."""
    learnt, kept = adaptation(accuracy), accuracy[_square(accuracy) - 1][0]
    if learnt is None:
        return None
    return 2 * learnt * kept / (learnt + kept) if learnt + kept else 0.0


def average_accuracy(accuracy: Matrix) -> float:
    """Mean accuracy over all seen domains, source included, after the last stage."""
    return mean(list(accuracy[_square(accuracy) - 1]))


def top1(correct: Sequence[int], images: Sequence[int]) -> float:
    """Share of images classified correctly, from counts per class."""
    return sum(correct) / sum(images)


def per_class(correct: Sequence[int], images: Sequence[int]) -> float:
    """Unweighted mean of the accuracies of the classes that occur: VisDA's headline."""
    return mean([c / n for c, n in zip(correct, images, strict=True) if n])


def accuracy(headline: str, correct: Sequence[int], images: Sequence[int]) -> float:
    """The accuracy that a benchmark goes by: ``per-class`` or ``top1``."""
    return per_class(correct, images) if headline == "per-class" else top1(correct, images)


@dataclass(frozen=True)
class Measure:
    """One number of a run, computed from its accuracy matrix; all are fractions, shown in percent."""

    title: str
    meaning: str  # for readers of a report
    compute: Callable[[Matrix], float | None]  # None where a chain has no such number
    undefined: str = ""  # why some chains have none
    larger_is_better: bool = True
    short: bool = True  # False: not in the terminal's tables, which have little room; everything else shows it


# To add a measure: a function above and an entry here. Summaries, logs, reports and comparisons take them from here.
MEASURES: Registry[Measure] = Registry(
    "measure",
    {
        "average": Measure(
            "Average",
            "Mean accuracy over all domains of the chain, source included, after the last stage: how good the final "
            "model is on everything it has seen.",
            average_accuracy,
        ),
        "adaptation": Measure(
            "Adaptation",
            "Mean over the targets of the accuracy right after adapting to each: how well the method learns.",
            adaptation,
            undefined="the chain has no target",
        ),
        "source_drop": Measure(
            "Source drop",
            "Accuracy on the source before any adaptation minus after the last stage, in percentage points. "
            "Positive means forgetting; lower is better.",
            source_drop,
            larger_is_better=False,
        ),
        "harmonic": Measure(
            "Harmonic mean",
            "Harmonic mean of adaptation and of the accuracy on the source after the last stage: high only where both "
            "are high.",
            harmonic_mean,
            undefined="the chain has no target",
            short=False,
        ),
        "bwt": Measure(
            "BWT",
            "Backward transfer: the mean, over all domains but the last one, of the accuracy at the end minus the "
            "accuracy right after that domain's own stage, in percentage points. The source counts as the first "
            "domain. Negative means forgetting; higher is better.",
            backward_transfer,
            undefined="the chain has no earlier domain",
        ),
        "bwt_targets": Measure(
            "BWT, targets",
            "Backward transfer averaged over the earlier targets alone, without the source.",
            partial(backward_transfer, include_source=False),
            undefined="needs a chain of two targets or more",
            short=False,
        ),
        "forgetting": Measure(
            "Forgetting",
            "Mean, over all domains but the last one, of the best accuracy since that domain's own stage minus the "
            "accuracy at the end, in percentage points. Lower is better.",
            forgetting,
            undefined="the chain has no earlier domain",
            larger_is_better=False,
            short=False,
        ),
        "forward_transfer": Measure(
            "Forward transfer",
            "Mean, over the targets after the first, of the accuracy just before adapting to it minus the source "
            "model's, in percentage points: what earlier targets teach about the later ones.",
            forward_transfer,
            undefined="needs a chain of two targets or more",
            short=False,
        ),
    },
    group="cosda.measures",
    of=Measure,
)


def summary(accuracy: Matrix) -> dict[str, float | None]:
    """Every measure by its name; None where the chain has no such number."""
    return {name: measure.compute(accuracy) for name, measure in MEASURES.items()}
