"""A domain bank measured on a domain whose name it is not told.

Where the images that are measured are those of which the domain's profile was made, as in the transductive protocol,
each is routed by a profile that was made without it. Otherwise the router would look better than it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cosda.data.domain import Domain, Index
from cosda.data.loader import Loader
from cosda.models.bn_folding import evaluating
from cosda.models.experts import DomainBank, Routing
from cosda.models.profile import FEWEST, crossfitted
from cosda.models.router import Router
from cosda.run.profile import routing_statistics


@dataclass(frozen=True)
class Routed:
    """What a bank said of images, and by which experts."""

    predicted: Index  # (N,) classes
    routing: Routing  # of all images
    crossfitted: bool

    def facts(self, bank: DomainBank) -> dict[str, object]:
        """What a record says: how many images went to each expert, how many to several, how many resemble no domain."""
        best = self.routing.posterior.argmax(dim=1)
        mixed = int((self.routing.shares.max(dim=1).values < 1).sum())
        return {
            "known": list(bank.known),
            "sent": torch.bincount(best, minlength=len(bank.known)).tolist(),
            "mixed": mixed,
            "unknown": int(self.routing.unknown.sum()),
            "crossfitted": self.crossfitted,
        }


def routed(bank: DomainBank, domain: Domain, images: Loader) -> Routed:
    """What a bank says of a domain's test images, without being told which domain it is."""
    seen = routing_statistics(bank.gauge, images)
    same = len(np.intersect1d(domain.train, domain.test)) > 0
    profiles = [profile for profile in bank.profiles if profile.name == domain.name and profile.covariance is not None]
    again = bool(profiles) and same and len(seen) >= FEWEST
    routing = _crossfitted(bank, domain.name, seen) if again else bank.route(seen)
    shares, predicted = routing.shares, []
    with evaluating(bank) as fast:
        for batch in images.sweep("test"):
            inputs = fast.encoder(batch.images) if bank.late else batch.images
            answer = bank.answer(inputs, shares[batch.index.cpu()])
            predicted.append(answer.logits.argmax(dim=1).cpu().numpy())
    return Routed(np.concatenate(predicted), routing, again)


def _crossfitted(bank: DomainBank, name: str, statistics: Tensor) -> Routing:
    """Where images of a known domain go, each by a profile of that domain that was made without it."""
    own = next(profile for profile in bank.profiles if profile.name == name)
    posterior = torch.zeros(len(statistics), len(bank.known), dtype=torch.float64)
    unknown = torch.zeros(len(statistics), dtype=torch.bool)
    for fold, part in crossfitted(name, statistics):
        stand_in = replace(part, distances=own.distances, temperature=own.temperature)
        others = tuple(stand_in if profile is own else profile for profile in bank.profiles)
        posterior[fold], unknown[fold] = bank.route(statistics[fold], Router(others))
    return Routing(posterior, unknown)
