"""What is kept of a domain once its images are gone: averages over all of them, in a few thousand numbers.

A profile tells what the images of a domain look like to a network (mean and covariance of their routing statistics, see
`router`), and what the network said of them (how many images of each class, how confident). Means over small groups of
its images tell later whether new images are of this domain (`cosda.judge.drift`). It holds no image and no label, and
none is made of fewer than `FEWEST` images, so that no single one shows in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, TypedDict

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from cosda.errors import CosdaError
from cosda.files import parse_json
from cosda.models.calibration import Calibration
from cosda.randomness import stream
from cosda.settings import Range, shown, typed

FORMAT = 1
FEWEST = 20  # images
FOLDS = 5  # of cross-fitting: each image is judged by a profile that was made without it
QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
LEFT = 0.1  # of a variance that is left at least when what lies between images is taken off
CONFIDENCES = 20  # bins from 0 to 1
PLACES = ("early", "features", "predictions")  # of a network, where new images are compared with known ones
GROUPS = 25  # of `FEWEST` images each, at most, at each place: with twice as many no more shifts are found

_GROUPS = "groups."  # and the place: names of tensors in a profile's file


class _Facts(TypedDict):
    """What a profile's file says beside its tensors."""

    name: str
    images: Annotated[int, Range(0)]
    temperature: Annotated[float | None, Range(1e-6, 1e6)]
    late: bool
    full: bool


@dataclass(frozen=True, eq=False)
class DomainProfile:
    """Averages over the images of one domain, as one network sees them."""

    name: str
    images: int  # 0 where it was made of BatchNorm statistics
    mean: Tensor  # (D,) of the routing statistics
    covariance: Tensor | None  # (D, D), shrunk; None where it was made of BatchNorm statistics
    distances: Tensor  # (Q,) quantiles of the squared Mahalanobis distances of its own images, cross-fitted
    temperature: float | None = None  # by which posteriors are flattened; None where there was nothing to compare with
    classes: Tensor | None = None  # (C,) images of each predicted class
    confidences: Tensor | None = None  # (20,) images by the probability of their class
    late: bool = False  # whether the statistics are features at the encoder's end
    full: bool = False  # whether images were looked at in full size, and large ones not halved
    calibration: Calibration | None = None  # of the network, on labelled images of the domain; few have one
    groups: Mapping[str, Tensor] = field(default_factory=dict)  # place -> (G, d), see `group_means`

    @cached_property
    def limit(self) -> float | None:
        """The squared distance beyond which an image is unlike this domain: a hundredth of its own images are."""
        return float(self.distances[QUANTILES.index(0.99)]) if len(self.distances) else None

    def distance(self, statistics: Tensor) -> Tensor:
        """Squared Mahalanobis distances (B,) of images from this domain, by its own covariance."""
        self.check_fits(self.mean, statistics)
        away = (statistics - self.mean) @ self.whitening
        return away.square().sum(dim=1)

    @cached_property
    def whitening(self) -> Tensor:
        """(D, D) such that distances are those of the plane."""
        assert self.covariance is not None
        factor = torch.linalg.cholesky(self.covariance)
        identity = torch.eye(len(factor), dtype=factor.dtype)
        inverse: Tensor = torch.linalg.solve_triangular(factor, identity, upper=False)
        return inverse.T

    def check_fits(self, known: Tensor, seen: Tensor) -> None:
        """An error where images were seen (N, d) otherwise than those of which these numbers (…, d) are known."""
        if seen.shape[-1] != known.shape[-1]:
            raise CosdaError(
                f"the profile of '{self.name}' was made by another network: it holds {known.shape[-1]} numbers of each "
                f"image where this one gives {seen.shape[-1]}. Make it again: cosda profile MODEL FOLDER."
            )

    def told(self, probabilities: Tensor) -> DomainProfile:
        """The same with what a network said of the domain's images: probabilities (N, C)."""
        confidence, predicted = probabilities.double().cpu().max(dim=1)
        classes = torch.bincount(predicted, minlength=probabilities.shape[1])
        return replace(self, classes=classes, confidences=binned(confidence))

    def to_bytes(self) -> bytes:
        """The content of its file; equal profiles give equal bytes."""
        tensors = {"mean": self.mean.double(), "distances": self.distances.double()}
        if self.covariance is not None:
            rows, columns = torch.triu_indices(*self.covariance.shape)
            tensors["covariance"] = self.covariance[rows, columns].float()
        tensors |= {
            key: value.long() for key in ("classes", "confidences") if (value := getattr(self, key)) is not None
        }
        tensors |= {_GROUPS + place: means.float() for place, means in self.groups.items()}
        facts = {
            "format": FORMAT,
            **{key: getattr(self, key) for key in ("name", "images", "temperature", "late", "full")},
        }
        if self.calibration is not None:
            facts["calibration"] = self.calibration.as_json()
        # One text in the metadata, because safetensors writes several in any order.
        return safetensors.torch.save(tensors, {"profile": json.dumps(facts, ensure_ascii=False)})

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> DomainProfile:
        """The reverse of `to_bytes`.

        Raises:
            CosdaError: it is none, or its parts do not fit each other.
        """
        damaged = f"{where} is no domain profile"
        try:
            length = int.from_bytes(content[:8], "little")
            head = parse_json(content[8 : 8 + length], damaged)
            facts = parse_json(head["__metadata__"]["profile"], damaged)
            version = facts["format"]
            tensors = safetensors.torch.load(content) if version == FORMAT else {}
        except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise CosdaError(f"{damaged}: {error!r}.") from None
        if version != FORMAT:
            raise CosdaError(f"{where} has profile format {shown(version)}; this cosda reads {FORMAT}: update cosda.")
        return cls._read(typed(_Facts, facts, damaged), tensors, damaged)

    @classmethod
    def _read(cls, facts: dict[str, Any], tensors: dict[str, Tensor], damaged: str) -> DomainProfile:
        def numbers(name: str, *shape: int | None) -> Tensor:
            """A tensor of finite numbers; None in its shape is any."""
            found = tensors.get(name)
            if found is None or found.dim() != len(shape) or not bool(found.double().isfinite().all()):
                raise CosdaError(f"{damaged}: it has no {name} of finite numbers.")
            if any(wanted not in (None, size) for wanted, size in zip(shape, found.shape, strict=True)):
                raise CosdaError(f"{damaged}: its {name} are {tuple(found.shape)}.")
            return found

        def counts(name: str, length: int | None) -> Tensor | None:
            if name not in tensors:
                return None
            found = numbers(name, length).long()
            if not len(found) or bool((found < 0).any()):
                raise CosdaError(f"{damaged}: its {name} are no counts.")
            return found

        mean, distances = numbers("mean", None).double(), numbers("distances", None).double()
        width = len(mean)
        if not width or len(distances) not in (0, len(QUANTILES)):
            raise CosdaError(f"{damaged}: it has {width} means and {len(distances)} distances.")
        covariance = None
        if "covariance" in tensors:
            covariance = _square(numbers("covariance", width * (width + 1) // 2), width)
            if int(torch.linalg.cholesky_ex(covariance).info):
                raise CosdaError(f"{damaged}: its covariance is that of no images.")
        if (covariance is None) != (not len(distances)):
            raise CosdaError(f"{damaged}: distances need a covariance, and it needs them.")
        return cls(
            name=facts["name"],
            images=facts["images"],
            mean=mean,
            covariance=covariance,
            distances=distances,
            temperature=facts["temperature"],
            classes=counts("classes", None),
            confidences=counts("confidences", CONFIDENCES),
            late=facts["late"],
            full=facts["full"],
            calibration=Calibration.from_json(facts.get("calibration"), damaged),
            groups={place: numbers(_GROUPS + place, None, None) for place in PLACES if _GROUPS + place in tensors},
        )

    @property
    def key(self) -> str:
        """Names its bits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


def binned(confidence: Tensor) -> Tensor:
    """How many images (20,) have a probability (N,) of their class in each of 20 bins from 0 to 1."""
    return torch.bincount(bin_of(confidence), minlength=CONFIDENCES)


def bin_of(confidence: Tensor) -> Tensor:
    """The bin (N,) of each probability."""
    return (confidence * CONFIDENCES).long().clamp(max=CONFIDENCES - 1)


def make_profile(name: str, statistics: Tensor, late: bool = False) -> DomainProfile:
    """The profile of a domain, from the routing statistics (N, D) of its images.

    Raises:
        CosdaError: there are too few images.
    """
    check_enough(name, len(statistics))
    statistics = statistics.double().cpu()
    apart = torch.empty(len(statistics), dtype=torch.float64)
    for fold, profile in crossfitted(name, statistics):
        apart[fold] = profile.distance(statistics[fold])
    limits = apart.quantile(torch.tensor(QUANTILES, dtype=torch.float64))
    return replace(_bare(name, statistics), distances=limits, late=late, groups={"early": group_means(statistics)})


def group_means(values: Tensor) -> Tensor:
    """Means (G, d) of values (N, d) over groups of `FEWEST` images, put together at random; the rest is left out."""
    count = min(len(values) // FEWEST, GROUPS)
    chosen = torch.randperm(len(values), generator=stream(len(values), "groups"))[: count * FEWEST]
    grouped = values.double().cpu()[chosen].reshape(count, FEWEST, values.shape[1])
    return grouped.mean(dim=1).float()


def check_enough(name: str, images: int) -> None:
    """An error for a domain with so few images that no profile is made of it."""
    if images < FEWEST:
        raise CosdaError(
            f"'{name}' has {images} images that can be read; a profile is made of at least {FEWEST}, so that no single "
            "image shows in it."
        )


def crossfitted(name: str, statistics: Tensor) -> Iterator[tuple[Tensor, DomainProfile]]:
    """Folds of the images (N,), each with a profile that was made without it: no image is judged by itself."""
    for number in range(FOLDS):  # every fifth image, because neighbours are often alike
        fold = torch.arange(len(statistics)) % FOLDS == number
        yield fold, _bare(name, statistics[~fold])


def profile_of_norms(name: str, means: Sequence[Tensor], variances: Sequence[Tensor], within: Tensor) -> DomainProfile:
    """What BatchNorm layers remember of the images that a network was trained on.

    Their running means are the means of the channels. Their running variances are those of pixels of all images
    together: what images differ in, by their means and their deviations, must be taken off, and another domain's
    variances ``within`` tell how much that is. How far images lie from each other they do not tell.
    """
    parts: list[Tensor] = []
    for mean, variance in zip(means, variances, strict=True):
        done, width = sum(map(len, parts)), len(mean)
        between = within[done : done + width] + within[done + width : done + 2 * width]
        parts += [
            mean.double().cpu(),
            (variance.double().cpu() - between).clamp(min=LEFT * variance.double().cpu()).sqrt(),
        ]
    nothing = torch.empty(0, dtype=torch.float64)
    return DomainProfile(name, 0, torch.cat(parts), None, nothing, full=True)


def _bare(name: str, statistics: Tensor) -> DomainProfile:
    mean, covariance = _moments(statistics)
    # As it will be read back, so that a profile from a file and the one that was written are the same.
    covariance = covariance.float().double()
    return DomainProfile(name, len(statistics), mean, covariance, torch.empty(0, dtype=torch.float64))


def _moments(statistics: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (D,) and covariance (D, D), its correlations shrunk towards none by as much as Ledoit and Wolf reckon."""
    mean = statistics.mean(dim=0)
    deviation = statistics.std(dim=0, correction=0)
    # A channel that never changes (a dead one) tells nothing, and must not tell infinitely much of a small change.
    deviation = deviation.clamp(min=1e-3 * float(deviation.median()) + 1e-9)
    standard = (statistics - mean) / deviation
    count, width = standard.shape
    correlation = standard.T @ standard / count
    apart = correlation - torch.eye(width, dtype=torch.float64) * correlation.trace() / width
    error = (standard.square().sum(dim=1).square().sum() / count - correlation.square().sum()) / count
    shrinkage = float((error / apart.square().sum().clamp(min=1e-12)).clamp(1e-4, 1))
    shrunk = (1 - shrinkage) * correlation + shrinkage * torch.eye(width, dtype=torch.float64)
    return mean, shrunk * deviation[:, None] * deviation[None, :]


def _square(triangle: Tensor, width: int) -> Tensor:
    square = torch.zeros(width, width, dtype=torch.float64)
    rows, columns = torch.triu_indices(width, width)
    square[rows, columns] = triangle.double()
    square[columns, rows] = triangle.double()
    return square
