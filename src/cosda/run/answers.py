"""What a model says of images, by which of its experts, and why by these."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from cosda.data.loader import Loader
from cosda.errors import CosdaError
from cosda.models.bn_folding import evaluating
from cosda.models.experts import DomainBank
from cosda.models.network import Network
from cosda.run.evaluate import checked, probabilities
from cosda.run.predictions import Route


def answering(network: Network, domain: str | None, experts_in_memory: int | None = None) -> Network:
    """The network that answers: all of it, or what it has for one domain; experts are kept ready up to a number.

    Raises:
        CosdaError: the domain is not known, or must be named.
    """
    if isinstance(network, DomainBank) and experts_in_memory is not None:
        network = network.keep_ready(experts_in_memory)
    return network.for_domain(domain)


def routes(network: Network) -> DomainBank:
    """The network, if it is one that routes images; an error for any other."""
    if isinstance(network, DomainBank):
        return network
    raise CosdaError(
        "--explain (in Python explain=True) says how a domain bank routed each image, but here nothing is routed: the "
        "model is no domain bank, or it was told the domain. Leave it out; 'cosda adapt --carry bank' makes a bank."
    )


def answers(
    network: Network, images: Loader, explain: bool = False
) -> tuple[NDArray[np.float32], Sequence[Route | None]]:
    """Class probabilities (N, C) of all images, in order, and the route of each where it is asked for."""
    if not explain:
        found = probabilities(network, images)
        return found, [None] * len(found)
    bank, parts, found_routes = routes(network), [], []
    with evaluating(bank) as fast:
        for batch in images.sweep("test"):
            output, routing = fast.explain(batch.images)
            parts.append(checked(output, batch.images).logits.softmax(dim=1).cpu())
            for posterior, unknown in zip(routing.posterior.tolist(), routing.unknown.tolist(), strict=True):
                found_routes.append(Route(dict(zip(bank.known, posterior, strict=True)), unknown))
    return torch.cat(parts).numpy(), found_routes
