"""Whether an adaptation helped, as far as that can be told: the verdict, and what it rests on. No torch.

An adaptation leaves beside its records

    verdict/verdict.json    the verdict (`Verdict.as_json`)
    verdict/images.json     images whose class changed and least confident ones (`JudgedImage.as_json`), with names of
                            their thumbnails, which lie beside it: 0.jpg, 1.jpg, …
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from cosda.errors import CosdaError
from cosda.records.images import ComparedImage

Word = Literal["accepted", "doubtful", "rejected"]
Why = Literal["changed", "unsure"]
By = Literal["estimates", "check", "guard"]
WORDS: tuple[str, ...] = get_args(Word)
FOLDER = "verdict"
# What values that are none of a verdict may raise.
UNREADABLE = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


@dataclass(frozen=True)
class Estimate:
    """An accuracy that nobody measured: the most likely one, and the interval in which it lies in nine of ten cases."""

    accuracy: float
    low: float
    high: float
    estimators: Mapping[str, float] = field(default_factory=dict)  # what each estimator says by itself

    @property
    def text(self) -> str:
        """For people, in percent."""
        return f"{self.accuracy:.0%} ({self.low:.0%} to {self.high:.0%})"


@dataclass(frozen=True)
class Said:
    """What a model says of the images of the new domain."""

    classes: tuple[int, ...]  # images of each predicted class, in the order of the model's classes
    confidence: float  # mean probability of the predicted classes
    confidences: tuple[int, ...]  # images by the probability of their class: 20 bins from 0 to 1
    estimate: Estimate | None  # None where the model has no profile with a calibration
    scores: Mapping[str, float] = field(default_factory=dict)  # label-free ones, as they are recorded after each epoch


@dataclass(frozen=True)
class Counted:
    """Correct answers on labelled images, with an exact interval (Clopper and Pearson, 95 %)."""

    correct: int
    images: int
    low: float
    high: float

    @property
    def accuracy(self) -> float:
        """The share of correct answers."""
        return self.correct / self.images

    @property
    def text(self) -> str:
        """For people, in percent."""
        return f"{self.accuracy:.0%} ({self.low:.0%} to {self.high:.0%})"


@dataclass(frozen=True)
class Checked:
    """What a few labelled images say of the model before and after."""

    before: Counted
    after: Counted
    better: int  # images that only the adapted model classifies correctly
    worse: int  # images that only the incoming model classifies correctly
    p_value: float  # of the exact paired test (McNemar): how likely such a difference is by chance


@dataclass(frozen=True)
class Verdict:
    """Whether an adaptation may be used, and why."""

    verdict: Word
    reasons: tuple[str, ...]  # in words, the most important first
    decided_by: By
    domain: str
    images: int
    classes: tuple[str, ...]  # the model's
    method: str
    select: str  # the rule by which the epoch was chosen
    before: Said | None = None  # None where training was stopped before there was anything to compare
    after: Said | None = None
    changed: float | None = None  # share of images whose class changed
    # The share of equal answers of the incoming and the adapted model, by domain: the new one's images, and what stands
    # in for those of the domains that were known before.
    agreement: Mapping[str, float] = field(default_factory=dict)
    check: Checked | None = None
    risk: float | None = None  # how likely more than two points were lost, on the new domain or on what was known
    evidence: Mapping[str, float] = field(default_factory=dict)  # the numbers on which risk and estimates rest

    @property
    def short(self) -> dict[str, Any]:
        """What the lineage of a model keeps of it."""
        estimates = {
            when: said.estimate if said else None for when, said in (("before", self.before), ("after", self.after))
        }
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "decided_by": self.decided_by,
            **{when: [e.accuracy, e.low, e.high] if e else None for when, e in estimates.items()},
        }

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Verdict:
        """The reverse of `as_json`.

        Raises:
            One of `UNREADABLE`: the values are none of a verdict, or do not fit together.
        """
        known = dict(values)
        for key in ("reasons", "classes"):
            known[key] = tuple(map(str, known[key]))
        for name in ("before", "after"):
            if known.get(name) is not None:
                known[name] = _said(known[name], len(known["classes"]))
        for key in ("changed", "risk"):
            if known.get(key) is not None:
                known[key] = float(known[key])
        for key in ("agreement", "evidence"):
            known[key] = _numbers(known.get(key, {}))
        if known.get("check") is not None:
            known["check"] = _checked(known["check"])
        if known["verdict"] not in WORDS or known["decided_by"] not in get_args(By):
            raise ValueError(f"no verdict is {known['verdict']!r}, decided by {known['decided_by']!r}")
        return cls(**known)


def _said(values: Mapping[str, Any], classes: int) -> Said:
    known = dict(values)
    for key in ("classes", "confidences"):
        known[key] = tuple(map(int, known[key]))
    if len(known["classes"]) != classes:
        raise ValueError(f"there are {classes} classes and images of {len(known['classes'])}")
    if known["estimate"] is not None:
        found = dict(known["estimate"])
        estimators = _numbers(found.pop("estimators", {}))
        known["estimate"] = Estimate(**_numbers(found), estimators=estimators)
    return Said(**known | {"confidence": float(known["confidence"]), "scores": _numbers(known.get("scores", {}))})


def _checked(values: Mapping[str, Any]) -> Checked:
    before, after = _counted(values["before"]), _counted(values["after"])
    return Checked(before, after, int(values["better"]), int(values["worse"]), float(values["p_value"]))


def _counted(values: Mapping[str, Any]) -> Counted:
    found = Counted(int(values["correct"]), int(values["images"]), float(values["low"]), float(values["high"]))
    if not 0 <= found.correct <= found.images or not found.images:
        raise ValueError(f"{found.correct} of {found.images} images cannot be correct")
    return found


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


@dataclass(frozen=True)
class JudgedImage(ComparedImage):
    """One image that somebody should look at; the first model is the incoming one."""

    why: Why
    thumbnail: str | None  # the file's name; None where data are feature vectors

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> JudgedImage:
        """The reverse of `as_json`.

        Raises:
            One of `UNREADABLE`: the values are none of such an image.
        """
        known = dict(values)
        for key in ("before_probability", "after_probability"):
            known[key] = float(known[key])
        if known["why"] not in get_args(Why) or Path(str(known["thumbnail"])).name != str(known["thumbnail"]):
            raise ValueError(f"no image is shown as {known['why']!r} with the thumbnail {known['thumbnail']!r}")
        return cls(**known)


def read_verdict(run: Path) -> Verdict | None:
    """The verdict in a run folder; None where there is none.

    Raises:
        CosdaError: it is damaged.
    """
    found = _read(run / FOLDER / "verdict.json")
    if found is None:
        return None
    try:
        return Verdict.from_json(found)
    except UNREADABLE as error:
        raise CosdaError(f"{run / FOLDER / 'verdict.json'} is damaged: {error!r}.") from None


def read_images(run: Path) -> tuple[JudgedImage, ...]:
    """The images that somebody should look at; none where nothing was judged."""
    try:
        return tuple(JudgedImage.from_json(one) for one in _read(run / FOLDER / "images.json") or ())
    except UNREADABLE as error:
        raise CosdaError(f"{run / FOLDER / 'images.json'} is damaged: {error!r}.") from None


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError) as error:
        raise CosdaError(f"{path} is damaged: {error}.") from None
