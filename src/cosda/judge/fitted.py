"""What was fitted once, by `studies/verdict.py` on runs whose truth is known: estimates of accuracy, and the risk.

Three regressions, a few small trees and two limits, in `fitted.json` beside this file. Nothing is fitted when a user
adapts a model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from cosda.judge.evidence import ESTIMATORS
from cosda.models.calibration import Calibration
from cosda.records.verdict import Estimate, Word

# For a model whose probabilities nobody has compared with labels.
UNCALIBRATED = Calibration(images=0, accuracy=1.0, temperature=1.0, threshold=-0.5, held_out=False)
HARM = 0.02  # points of accuracy from which a loss counts
LEAST = 0.005  # nearer to 0 and 1 shares do not come, so that their logarithms stay finite

# What a number says where it is far from what it is in good adaptations; in the order of importance.
SENTENCES: Mapping[str, str] = {
    "kept": "{value:.0%} of what stands in for known domains keeps its class: the model forgets",
    "drawn": "only {value:.0%} of the feature vectors that stand in for the known domain keep their class: the model "
    "forgets",
    "agreement where sure": "only {value:.0%} of the images of which the incoming model was sure keep their class",
    "diversity": "few classes are predicted: {value:.0%} of what an even mixture would be",
    "views, after": "only {value:.0%} of the images keep their class when they are cropped otherwise",
    "neighbours, after": "only {value:.0%} of the images have the class of their nearest neighbours",
    "confidence, before": "the incoming model is unsure of these images (mean probability {value:.0%}): is their "
    "preprocessing right, and do they show its classes?",
    "images per class": "there are few images for the number of classes",
    "moved": "the weights went far from those of the incoming model: is the learning rate too high?",
    "distance": "the images are unlike anything that the model knows",
}


def scaled(name: str, value: float) -> float:
    """A number as the regressions take it: shares as log-odds."""
    if name in ("images per class", "distance", "moved"):
        return value
    value = min(max(value, LEAST), 1 - LEAST)
    return math.log(value / (1 - value))


def unscaled(value: float) -> float:
    """A share from its log-odds."""
    return 1 / (1 + math.exp(-value))


@dataclass(frozen=True)
class Regression:
    """A weighted sum of numbers."""

    weights: Mapping[str, float]
    bias: float
    spread: float = 0.0  # nine of ten times the truth is not farther away

    def __call__(self, evidence: Mapping[str, float]) -> float:
        """The sum, for numbers by name."""
        return self.bias + sum(weight * scaled(name, evidence[name]) for name, weight in self.weights.items())


Node = tuple[str, float, int, int, float]  # number, threshold, next node if below or equal, else, value of a leaf


@dataclass(frozen=True)
class Trees:
    """A sum of small decision trees; unlike a weighted sum, they do not run away where a number is like none seen."""

    bias: float
    trees: tuple[tuple[Node, ...], ...]

    def __call__(self, evidence: Mapping[str, float]) -> float:
        """The sum, for numbers by name."""
        return self.bias + sum(_leaf(tree, evidence) for tree in self.trees)


def _leaf(tree: tuple[Node, ...], evidence: Mapping[str, float]) -> float:
    place = 0
    while True:
        name, threshold, below, above, value = tree[place]
        if not name:
            return value
        place = below if evidence[name] <= threshold else above


@dataclass(frozen=True)
class Fitted:
    """All that was fitted."""

    before: Regression  # log-odds of the incoming model's accuracy
    after: Regression  # of the adapted model's
    harm: Regression  # log-odds that more than two points were lost: their sum
    trees: Trees  # and what a sum does not tell
    accept: float  # risks below are accepted,
    reject: float  # and those above rejected
    usual: Mapping[str, tuple[float, float]]  # between which values nearly all good adaptations lie

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Fitted:
        """As `studies/verdict.py` wrote it."""
        before, after, harm = (Regression(**values[name]) for name in ("before", "after", "harm"))
        trees = tuple(tuple((n, t, b, a, v) for n, t, b, a, v in tree) for tree in values["trees"]["trees"])
        ends = values["usual"].items()
        usual = {name: (_number(low, -math.inf), _number(high, math.inf)) for name, (low, high) in ends}
        summed = Trees(values["trees"]["bias"], trees)
        return cls(before, after, harm, summed, accept=values["accept"], reject=values["reject"], usual=usual)

    def as_json(self) -> dict[str, Any]:
        """Plain values; a side without a limit is null."""
        usual = {name: [_finite(low), _finite(high)] for name, (low, high) in self.usual.items()}
        return asdict(self) | {"usual": usual}

    def word(self, risk: float, evidence: Mapping[str, float]) -> Word:
        """The verdict that a risk leads to; where anything is unusual nothing is accepted."""
        if risk > self.reject:
            return "rejected"
        return "accepted" if risk < self.accept and not self.reasons(evidence) else "doubtful"

    def accuracy(self, evidence: Mapping[str, float], when: str) -> Estimate:
        """The estimated accuracy of the model ``before`` or ``after``, with the interval of nine cases in ten."""
        regression = self.before if when == "before" else self.after
        middle = regression(evidence)
        own = {name: evidence[f"{name}, {when}"] for name in ESTIMATORS}
        return Estimate(
            unscaled(middle), unscaled(middle - regression.spread), unscaled(middle + regression.spread), own
        )

    def risk(self, evidence: Mapping[str, float]) -> float:
        """How likely more than two points were lost, on the new domain or on what was known."""
        return unscaled(self.harm(evidence) + self.trees(evidence))

    def reasons(self, evidence: Mapping[str, float], calibrated: bool = True) -> tuple[str, ...]:
        """What is unusual, in words; of accuracies only where the model was calibrated."""
        unusual = [
            sentence.format(value=evidence[name])
            for name, sentence in SENTENCES.items()
            if name in self.usual and not self.usual[name][0] <= evidence[name] <= self.usual[name][1]
        ]
        before, after = (self.accuracy(evidence, when).accuracy for when in ("before", "after"))
        if calibrated and after < before - HARM:
            unusual.insert(0, f"the estimated accuracy falls from {before:.0%} to {after:.0%}")
        return tuple(unusual)


def _number(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@lru_cache(maxsize=1)
def fitted() -> Fitted:
    """What was fitted, as the package has it."""
    text = resources.files("cosda").joinpath("judge/fitted.json").read_text(encoding="utf-8")
    return Fitted.from_json(json.loads(text))
