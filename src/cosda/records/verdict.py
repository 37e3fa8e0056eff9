"""Whether an adaptation helped, as far as that can be told: the verdict, and what it rests on. No torch.

An adaptation leaves beside its records

    verdict/verdict.json    the verdict (`Verdict.as_json`)
    verdict/images.json     images whose class changed and least confident ones (`JudgedImage.as_json`), with names of
                            their thumbnails, which lie beside it: 0.jpg, 1.jpg, …
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from cosda.errors import CosdaError
from cosda.files import read_json
from cosda.records.images import ComparedImage, Share
from cosda.settings import Range, typed
from cosda.shown import Facts, Shown

Word = Literal["accepted", "doubtful", "rejected"]
Why = Literal["changed", "unsure"]
By = Literal["estimates", "check", "guard"]
WORDS: tuple[str, ...] = get_args(Word)
FOLDER = "verdict"
DECIDED: Mapping[By, str] = {
    "estimates": "decided by estimates without labels",
    "check": "decided by the labelled images",
    "guard": "decided by the guard of the training",
}
Count = Annotated[int, Range(0)]


@dataclass(frozen=True)
class Estimate:
    """An accuracy that nobody measured: the most likely one, and the interval in which it lies in nine of ten cases."""

    accuracy: Share
    low: Share
    high: Share
    estimators: Mapping[str, float] = field(default_factory=dict)  # what each estimator says by itself

    @property
    def text(self) -> str:
        """For people, in percent."""
        return f"{self.accuracy:.0%} ({self.low:.0%} to {self.high:.0%})"


@dataclass(frozen=True)
class Said:
    """What a model says of the images of the new domain."""

    classes: tuple[Count, ...]  # images of each predicted class, in the order of the model's classes
    confidence: Share  # mean probability of the predicted classes
    confidences: tuple[Count, ...]  # images by the probability of their class: 20 bins from 0 to 1
    estimate: Estimate | None  # None where the model has no profile with a calibration
    scores: Mapping[str, float] = field(default_factory=dict)  # label-free ones, as they are recorded after each epoch


@dataclass(frozen=True)
class Counted:
    """Correct answers on labelled images, with an exact interval (Clopper and Pearson, 95 %)."""

    correct: Count
    images: Annotated[int, Range(1)]
    low: Share
    high: Share

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
    better: Count  # images that only the adapted model classifies correctly
    worse: Count  # images that only the incoming model classifies correctly
    p_value: Share  # of the exact paired test (McNemar): how likely such a difference is by chance


@dataclass(frozen=True)
class Verdict(Shown):
    """Whether an adaptation may be used, and why."""

    verdict: Word
    reasons: tuple[str, ...]  # in words, the most important first
    decided_by: By
    domain: str
    images: Count
    classes: tuple[str, ...]  # the model's
    method: str
    select: str  # the rule by which the epoch was chosen
    before: Said | None = None  # None where training was stopped before there was anything to compare
    after: Said | None = None
    changed: Share | None = None  # share of images whose class changed
    # The share of equal answers of the incoming and the adapted model, by domain: the new one's images, and what stands
    # in for those of the domains that were known before.
    agreement: Mapping[str, float] = field(default_factory=dict)
    check: Checked | None = None
    risk: Share | None = None  # how likely more than two points were lost, on the new domain or on what was known
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

    def _facts(self) -> Facts:
        title = f"{self.verdict}: {self.domain}, {self.images} images, {self.method}; {DECIDED[self.decided_by]}"
        return Facts(title, list(self._rows()))

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield from (("why", reason) for reason in self.reasons)
        if self.check is not None:
            measured = _change(self.check.before, self.check.after)
            paired = f"{self.check.better} better, {self.check.worse} worse (p = {self.check.p_value:.2g})"
            yield f"{self.check.after.images} labelled images", f"{measured}: {paired}"
        if self.before is None or self.after is None:
            return
        yield "estimated accuracy", _change(self.before.estimate, self.after.estimate)
        yield "mean confidence", f"{self.before.confidence:.0%} → {self.after.confidence:.0%}"
        if self.changed is not None:
            yield "class changed", f"{self.changed:.0%} of the images"
        if known := [f"{name} {share:.0%}" for name, share in self.agreement.items() if name != self.domain]:
            yield "agreement, known", ", ".join(known)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any, where: str = "a verdict") -> Verdict:
        """The reverse of `as_json`.

        Raises:
            CosdaError: the values are none of a verdict, or do not fit together; the message begins with ``where``.
        """
        found: Verdict = typed(cls, values, where)
        for said in (found.before, found.after):
            if said is not None and len(said.classes) != len(found.classes):
                raise CosdaError(f"{where}: there are {len(found.classes)} classes, images of {len(said.classes)}.")
        for counted in (found.check.before, found.check.after) if found.check else ():
            if counted.correct > counted.images:
                raise CosdaError(f"{where}: {counted.correct} of {counted.images} images cannot be correct.")
        return found


def _change(before: Estimate | Counted | None, after: Estimate | Counted | None) -> str:
    return " → ".join("unknown" if one is None else one.text for one in (before, after))


@dataclass(frozen=True)
class JudgedImage(ComparedImage):
    """One image that somebody should look at; the first model is the incoming one."""

    why: Why
    thumbnail: str | None  # the file's name; None where data are feature vectors

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any, where: str = "an image") -> JudgedImage:
        """The reverse of `as_json`.

        Raises:
            CosdaError: the values are none of such an image; the message begins with ``where``.
        """
        found: JudgedImage = typed(cls, values, where)
        if found.thumbnail is not None and Path(found.thumbnail).name != found.thumbnail:
            raise CosdaError(f"{where}: a thumbnail lies beside the file, and '{found.thumbnail}' would not.")
        return found


def read_verdict(run: Path) -> Verdict | None:
    """The verdict in a run folder; None where there is none.

    Raises:
        CosdaError: it is damaged.
    """
    path = run / FOLDER / "verdict.json"
    return Verdict.from_json(read_json(path), f"{path} is damaged") if path.is_file() else None


def read_images(run: Path) -> tuple[JudgedImage, ...]:
    """The images that somebody should look at; none where nothing was judged."""
    path = run / FOLDER / "images.json"
    found = typed(tuple[Any, ...], read_json(path), f"{path} is damaged") if path.is_file() else ()
    return tuple(JudgedImage.from_json(one, f"{path} is damaged") for one in found)
