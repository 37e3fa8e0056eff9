"""From the settings of edge-mixing to what mixes edges into training images, with labels or without."""

from __future__ import annotations

from pathlib import Path

import torch

from cosda.config.resolve import HOW_TO_GET
from cosda.config.schema import EdgeSettings, Optimisation
from cosda.data.domain import Domain
from cosda.data.edges import DexiNedEdges, EdgeMixing, Operator, new_dexined, sobel
from cosda.errors import CosdaError
from cosda.models.encoders.weights import load_weights


def has_edges(training: Optimisation, domain: Domain) -> bool:
    """Whether edges are mixed into the training images of a domain; feature vectors have none."""
    return training.edgemix < 1 and domain.kind != "features"


def check_edges(settings: EdgeSettings, training: Optimisation, domain: Domain) -> None:
    """Say before any training that a file is missing."""
    wanted = has_edges(training, domain) and settings.operator == "dexined"
    if wanted and not Path(settings.weights or "").expanduser().is_file():
        raise CosdaError(f"edges.weights: there is no file {settings.weights}. {HOW_TO_GET}")


def open_edges(
    settings: EdgeSettings, training: Optimisation, domain: Domain, device: torch.device
) -> EdgeMixing | None:
    """What mixes edges into the training images of a domain; None where nothing is mixed."""
    if not has_edges(training, domain):
        return None
    check_edges(settings, training, domain)
    operator: Operator = sobel
    if settings.operator == "dexined":
        network = new_dexined()
        load_weights(network, Path(settings.weights or "").expanduser())
        operator = DexiNedEdges(network.to(device), settings.input)
    return EdgeMixing(operator, training.edgemix, training.epochs - settings.clean_epochs)
