"""Whether new images come from a domain that a model knows, and whether it should be adapted to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from cosda.data.loader import Loader
from cosda.errors import CosdaError
from cosda.judge.drift import PValues, Seen, compare, corrected, fewest
from cosda.judge.evidence import distance
from cosda.judge.fitted import fitted
from cosda.judge.looking import look
from cosda.judge.verdict import gathered
from cosda.models.experts import DomainBank, Routing
from cosda.models.network import Network
from cosda.models.profile import FEWEST, GROUPS, PLACES
from cosda.records.verdict import Estimate
from cosda.run.evaluate import told
from cosda.run.profile import later_places, routing_statistics
from cosda.run.selector import sample
from cosda.shown import Facts, Shown

MOST = GROUPS * FEWEST  # images that are looked at
PART = 0.1  # share of the images from which a domain counts as a part of a mixture
LEAST_ALPHA = 0.001  # below, a p-value from so many deals could not lie
LOSS = 0.02  # of accuracy, which is not worth an adaptation


@dataclass(frozen=True)
class Drift(Shown):
    """What a model makes of some images: whether it knows their domain, and whether it should be adapted to them."""

    images: str  # where they lie, or what their domain is called
    count: int  # how many were looked at
    domains: tuple[str, ...]  # the known domain that they look most like; several where they are a mixture
    shares: Mapping[str, float]  # known domain -> the router's mean posterior
    unlike: float  # share of the images that resemble no known domain
    places: Mapping[
        str, float | None
    ]  # early, features, predictions -> p-value; None where there is nothing to compare
    p_value: float | None  # how often chance makes such a difference from `domains`; None: cannot be told
    alpha: float  # below which it counts as drift
    estimate: Estimate | None  # of the accuracy; None where the model has no calibration
    adapt: bool | None  # None: cannot be told
    reason: str  # in words
    skipped: Mapping[str, str] = field(default_factory=dict)  # images that cannot be read, and why

    @property
    def known(self) -> bool | None:
        """Whether the images may come from a known domain, or a mixture of some."""
        return None if self.p_value is None else self.p_value > self.alpha

    def _facts(self) -> Facts:
        answer = {True: "yes", False: "no", None: "cannot be told"}[self.adapt]
        places = ", ".join(f"{name} {value:.2g}" for name, value in self.places.items() if value is not None)
        rows = [
            ("why", self.reason),
            ("images looked at", str(self.count)),
            ("most like", " + ".join(self.domains)),
            ("unlike all known", f"{self.unlike:.0%}"),
            ("p-value", "cannot be told" if self.p_value is None else f"{self.p_value:.2g} ({places})"),
            ("estimated accuracy", "unknown" if self.estimate is None else self.estimate.text),
        ]
        return Facts(f"{self.images}: adapt now? {answer}", rows)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"known": self.known}


@dataclass(frozen=True)
class Explanation:
    """What images are if they come from a known domain, or several, and how well that agrees with them."""

    domains: tuple[str, ...]
    share: float  # of the images that the router takes for these domains
    places: PValues

    @property
    def p_value(self) -> float:
        """For all places."""
        return corrected(self.places)


def watch(network: Network, images: Loader, name: str, alpha: float) -> Drift:
    """What a network with profiles makes of images.

    Raises:
        CosdaError: it has no profile that was made of images.
    """
    bank = _as_bank(network)
    images = sample(images, MOST)
    statistics = routing_statistics(bank.gauge, images)
    routing = bank.route(statistics)
    seen = {"early": statistics, **later_places(told(bank.base, bank.known[0]), images)}
    shares = dict(zip(bank.known, routing.posterior.mean(dim=0).tolist(), strict=True))
    nearest = max(shares, key=shares.__getitem__)
    found = list(explanations(bank, routing, seen, alpha))
    best = _best(found, nearest, alpha)
    drift = Drift(
        images=name,
        count=len(images),
        domains=best.domains if best else (nearest,),
        shares=shares,
        unlike=float(routing.unknown.double().mean()),
        places={place: best.places.get(place) if best else None for place in PLACES},
        p_value=best.p_value if best else None,
        alpha=alpha,
        estimate=_estimate(bank, network, images),
        adapt=None,
        reason="",
    )
    adapt, reason = _advice(bank, drift)
    return replace(drift, adapt=adapt, reason=reason)


def _estimate(bank: DomainBank, network: Network, images: Loader) -> Estimate | None:
    """The accuracy of the network on the images, where its probabilities were once compared with labels."""
    own = bank.base.profile
    if own is None or own.calibration is None:
        return None
    answers = look(told(network, own.name), images)
    far = distance(bank, images, frozen=False)  # the loader gives images, whatever was frozen in training
    return fitted().accuracy(gathered(answers, answers, own.calibration) | {"distance": far}, "before")


def _as_bank(network: Network) -> DomainBank:
    """The network as a bank, which knows how to look at images; one domain alone is a bank without experts."""
    own = network.base.profile
    late = own is not None and own.late
    bank = network if isinstance(network, DomainBank) else DomainBank(network, (), late)
    if not any(profile.images for profile in bank.profiles):
        raise CosdaError(
            "the model has no profile, so there is nothing to compare images with. Show it images of the kind that it "
            "was trained on: cosda profile MODEL FOLDER (in Python cosda.profile)."
        )
    return bank


def explanations(bank: DomainBank, routing: Routing, seen: Seen, alpha: float) -> Iterator[Explanation]:
    """What the images may be: each known domain alone, and a mixture of those for which they are taken."""
    sent = routing.posterior.argmax(dim=1)
    shares = torch.bincount(sent, minlength=len(bank.known)).double() / len(sent)
    for profile in bank.profiles:
        if found := compare(profile, seen, alpha):
            yield Explanation((profile.name,), float(shares[bank.known.index(profile.name)]), found)
    parts = [place for place, share in enumerate(shares.tolist()) if share >= PART]
    if len(parts) > 1:
        yield from _mixture(bank, _nearest_part(routing.posterior, parts), parts, seen, alpha)


def _best(found: Sequence[Explanation], nearest: str, alpha: float) -> Explanation | None:
    """One domain that explains the images, else a mixture that does, else the domain that they look most like.

    None where that one cannot be compared: the images may be of it.
    """
    holding = [one for one in found if one.p_value > alpha]
    if holding:
        return max(holding, key=lambda one: (len(one.domains) == 1, one.share))
    return next((one for one in found if one.domains == (nearest,)), None)


def _nearest_part(posterior: Tensor, parts: list[int]) -> Tensor:
    """For each image the most probable of some domains."""
    return torch.tensor(parts)[posterior[:, parts].argmax(dim=1)]


def _mixture(bank: DomainBank, sent: Tensor, parts: list[int], seen: Seen, alpha: float) -> Iterator[Explanation]:
    """Each image compared with the domain that it is taken for; nothing where a part cannot be compared."""
    by_name = {profile.name: profile for profile in bank.profiles}
    found: list[PValues] = []
    for part in parts:
        profile = by_name.get(bank.known[part])
        rows = {place: values[sent == part] for place, values in seen.items()}
        found.append(compare(profile, rows, alpha) if profile else {})
    if all(found):
        places = {
            place: min(1.0, len(parts) * min(one[place] for one in found if place in one))
            for place in PLACES
            if any(place in one for one in found)
        }
        yield Explanation(tuple(bank.known[part] for part in parts), 1.0, places)


def _advice(bank: DomainBank, drift: Drift) -> tuple[bool | None, str]:
    """Whether the model should be adapted to the images, and why."""
    own = bank.known[0]
    if drift.known is None:
        return None, _what_is_missing(bank, drift)
    if drift.known:
        if drift.domains == (own,):
            return False, f"they look like {own}, which the model was trained on"
        if len(drift.domains) == 1:
            return False, f"they look like {drift.domains[0]}, which has an expert already"
        return False, f"they look like a mixture of {' and '.join(drift.domains)}; each image finds its expert"
    places = [place for place, value in drift.places.items() if value is not None and value <= drift.alpha]
    reason = f"they differ from {' and '.join(bank.known)} ({', '.join(places)})"
    reason += f"; {drift.unlike:.0%} of them resemble no known domain"
    calibration = bank.profile.calibration if bank.profile else None
    if drift.estimate is None or calibration is None:
        return True, reason
    told = f"estimated accuracy {drift.estimate.text}, and {calibration.accuracy:.0%} where it was calibrated"
    if drift.estimate.low >= calibration.accuracy - LOSS:
        return False, f"{reason}; but nothing seems to be lost: {told}"
    return True, f"{reason}; {told}"


def _what_is_missing(bank: DomainBank, drift: Drift) -> str:
    """Why nothing can be said of images that look most like some domain."""
    [domain] = drift.domains
    profile = next((one for one in bank.profiles if one.name == domain), None)
    if profile is None or not profile.groups:
        lacks = "has no profile" if profile is None else "has a profile without groups of images"
        return f"{domain} {lacks}: 'cosda profile MODEL FOLDER' makes one"
    needed = fewest(profile, drift.alpha)
    if needed is None:
        return f"the profile of {domain} was made of {profile.images} images; it needs {2 * FEWEST} or more"
    return f"too few images: {drift.count} of them, and {needed} are needed"
