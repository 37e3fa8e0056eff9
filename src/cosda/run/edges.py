"""Edge-mixing as an option of every training, with labels or without: its settings, and how they become an operator.

The names of the operator and its weights are settings, so every record of a run says which edges it was trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from cosda.data.domain import Domain
from cosda.data.edges import DexiNedEdges, EdgeMixing, Operator, new_dexined, sobel
from cosda.errors import CosdaError
from cosda.models.weights import load_weights
from cosda.settings import setting


@dataclass(frozen=True)
class EdgeSettings:
    """How much of its edges a training picture is mixed with."""

    edgemix: float = setting(1.0, "share of the picture beside its edges; 1 mixes none, 0.9 is EdgeMix", low=0, high=1)
    edge_operator: Literal["sobel", "dexined"] = setting("sobel", "what finds edges; 'dexined' needs edge_weights")
    edge_weights: str | None = setting(None, "file with DexiNed's weights; never downloaded")
    edge_clean_epochs: int = setting(2, "last epochs, which see pictures without edges", low=0)
    edge_space: Literal["normalised", "pixels"] = setting(
        "normalised", "add edges in 0..1 to normalised pictures, as the authors do, or mix both as pixels"
    )
    edge_input: Literal["centred", "authors"] = setting(
        "centred", "DexiNed sees centred BGR, as in its training, or the authors' stretched RGB"
    )

    def __post_init__(self) -> None:
        if self.edgemix < 1 and self.edge_operator == "dexined" and self.edge_weights is None:
            raise CosdaError(f"edge_operator = dexined needs edge_weights. {HOW_TO_GET}")


HOW_TO_GET = (
    "Download DexiNed's trained weights yourself (DexiNed_BIPED_10.pth, https://github.com/xavysp/DexiNed) and give "
    "the file with --set adapt.edge_weights=FILE, or use --set adapt.edge_operator=sobel, which needs none."
)


def check_edges(how: EdgeSettings, domain: Domain) -> None:
    """Say before any training that a file is missing."""
    wanted = _has_edges(how, domain) and how.edge_operator == "dexined"
    if wanted and not Path(how.edge_weights or "").expanduser().is_file():
        raise CosdaError(f"edge_weights: there is no file {how.edge_weights}. {HOW_TO_GET}")


def open_edges(how: EdgeSettings, epochs: int, domain: Domain, device: torch.device) -> EdgeMixing | None:
    """What mixes edges into the training pictures of a domain; nothing for feature vectors, which have none."""
    if not _has_edges(how, domain):
        return None
    check_edges(how, domain)
    operator: Operator = sobel
    if how.edge_operator == "dexined":
        network = new_dexined()
        load_weights(network, Path(how.edge_weights or "").expanduser())
        operator = DexiNedEdges(network.to(device), how.edge_input)
    return EdgeMixing(operator, how.edgemix, epochs - how.edge_clean_epochs, how.edge_space)


def _has_edges(how: EdgeSettings, domain: Domain) -> bool:
    return how.edgemix < 1 and domain.kind != "features"
