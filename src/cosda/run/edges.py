"""Edge-mixing as an option of every training, with labels or without: its settings, and how they become an operator.

The names of the operator and its weights are settings, so every record of a run says which edges it was trained on.
"""

from __future__ import annotations

from pathlib import Path

import torch

from cosda.config.schema import HOW_TO_GET, EdgeSettings
from cosda.data.domain import Domain
from cosda.data.edges import DexiNedEdges, EdgeMixing, Operator, new_dexined, sobel
from cosda.errors import CosdaError
from cosda.models.encoders.weights import load_weights


def check_edges(settings: EdgeSettings, domain: Domain) -> None:
    """Say before any training that a file is missing."""
    wanted = _has_edges(settings, domain) and settings.edge_operator == "dexined"
    if wanted and not Path(settings.edge_weights or "").expanduser().is_file():
        raise CosdaError(f"edge_weights: there is no file {settings.edge_weights}. {HOW_TO_GET}")


def open_edges(settings: EdgeSettings, epochs: int, domain: Domain, device: torch.device) -> EdgeMixing | None:
    """What mixes edges into the training images of a domain; nothing for feature vectors, which have none."""
    if not _has_edges(settings, domain):
        return None
    check_edges(settings, domain)
    operator: Operator = sobel
    if settings.edge_operator == "dexined":
        network = new_dexined()
        load_weights(network, Path(settings.edge_weights or "").expanduser())
        operator = DexiNedEdges(network.to(device), settings.edge_input)
    return EdgeMixing(operator, settings.edgemix, epochs - settings.edge_clean_epochs, settings.edge_space)


def _has_edges(settings: EdgeSettings, domain: Domain) -> bool:
    return settings.edgemix < 1 and domain.kind != "features"
