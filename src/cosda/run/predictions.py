"""The class of every image, with its probability."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosda.errors import CosdaError
from cosda.files import csv_text

FORMATS = ("csv", "json")


@dataclass(frozen=True)
class Route:
    """Which domain a domain bank takes an image for, and so which expert answers."""

    posteriors: Mapping[str, float]  # the probability of each known domain; the base's comes first
    unknown: bool  # whether the image resembles no known domain

    @property
    def domain(self) -> str:
        """The most probable domain."""
        return max(self.posteriors, key=self.posteriors.__getitem__)

    @property
    def posterior(self) -> float:
        """The probability of that domain. Where it is low, or the domain unknown, several experts answer together."""
        return self.posteriors[self.domain]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        facts = {"domain": self.domain, "posterior": self.posterior, "unknown": self.unknown}
        return facts | {"posteriors": dict(self.posteriors)}


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a model says of one image; nothing of one that could not be read, but the reason."""

    image: str  # its name, or its number where it has none
    classes: tuple[str, ...]  # of the model
    probabilities: NDArray[np.float32] | None  # (C,)
    skipped: str = ""  # why the image could not be read
    route: Route | None = None  # of a domain bank, where it was asked for

    def __eq__(self, other: object) -> bool:
        """Equal names, reasons, routes and bits."""
        if not isinstance(other, Prediction):
            return False
        if (self.image, self.skipped, self.route) != (other.image, other.skipped, other.route):
            return False
        mine, theirs = self.probabilities, other.probabilities
        return mine is theirs or (mine is not None and theirs is not None and np.array_equal(mine, theirs))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if self.probabilities is None:
            return f"Prediction(image={self.image!r}, skipped={self.skipped!r})"
        route = self.route
        routed = f", domain={route.domain!r}, posterior={route.posterior:.3f}, unknown={route.unknown}" if route else ""
        best = f"class_name={self.class_name!r}, probability={self.probability:.3f}"
        return f"Prediction(image={self.image!r}, {best}{routed})"

    def top(self, count: int) -> list[tuple[str, float]]:
        """The most probable classes, the best first, with their probabilities."""
        if self.probabilities is None:
            return []
        order = np.argsort(-self.probabilities, kind="stable")[:count]
        return [(self.classes[number], float(self.probabilities[number])) for number in order]

    @property
    def class_name(self) -> str:
        """The most probable class; empty where the image could not be read."""
        return self.top(1)[0][0] if self.probabilities is not None else ""

    @property
    def probability(self) -> float | None:
        """That of the most probable class."""
        return self.top(1)[0][1] if self.probabilities is not None else None

    def as_json(self, top: int = 1, every: bool = False) -> dict[str, Any]:
        """Plain values, with as many of the best classes as are wanted, and every probability if asked."""
        values: dict[str, Any] = {"image": self.image, "class": self.class_name, "probability": self.probability}
        if top > 1:
            values["top"] = [{"class": name, "probability": p} for name, p in self.top(top)]
        if every and self.probabilities is not None:
            values["probabilities"] = dict(zip(self.classes, self.probabilities.tolist(), strict=True))
        if self.route is not None:
            values |= self.route.as_json()
        return values | ({"skipped": self.skipped} if self.skipped else {})


def check_format(format: str) -> None:
    """An error for a format that predictions cannot be written in."""
    if format not in FORMATS:
        raise CosdaError(f"predictions are written as {' or '.join(FORMATS)}, not as '{format}'.")


def write_predictions(predictions: Sequence[Prediction], format: str, top: int = 1, every: bool = False) -> str:
    """Predictions as CSV with a header, or as a JSON list.

    Raises:
        CosdaError: an unknown format.
    """
    check_format(format)
    if format == "json":
        rows = [one.as_json(top, every) for one in predictions]
        return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    classes = predictions[0].classes if predictions and every else ()
    top = min(top, len(predictions[0].classes)) if predictions else top
    more = [name for k in range(2, top + 1) for name in (f"class_{k}", f"probability_{k}")]
    routed = ("domain", "posterior", "unknown") if any(one.route for one in predictions) else ()
    header = ("image", "class", "probability", *more, *(f"p({name})" for name in classes), *routed, "skipped")
    return csv_text([header, *(_cells(one, top, len(classes), bool(routed)) for one in predictions)])


def _cells(one: Prediction, top: int, classes: int, routed: bool) -> Iterator[str]:
    yield one.image
    best: list[tuple[str, float]] = one.top(top)
    for k in range(top):
        yield from (best[k][0], f"{best[k][1]:.6f}") if best else ("", "")
    if classes:
        yield from (f"{p:.6f}" for p in one.probabilities) if one.probabilities is not None else [""] * classes
    if routed:
        route = one.route
        yield from (route.domain, f"{route.posterior:.6f}", "yes" if route.unknown else "no") if route else [""] * 3
    yield one.skipped
