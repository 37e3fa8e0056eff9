"""Features of a frozen encoder: computed once for each image, and cached."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from cosda.data.domain import Domain, Undecoded, everything
from cosda.data.entries import cache_folder, open_entry
from cosda.data.loader import Loader
from cosda.files import Json, digest
from cosda.models.artifact import weights_key
from cosda.models.bn_folding import evaluating
from cosda.preprocessing import Preprocessing
from cosda.run.evaluate import EVALUATION_BATCH
from cosda.watch import Watcher

NAME = "features.npy"


def featurise(
    domain: Domain,
    content: str,
    encoder: nn.Module,
    preprocessing: Preprocessing,
    device: torch.device,
    cache: Path | None,
    watcher: Watcher,
) -> Domain:
    """The domain with each image replaced by the encoder's features of its test view; ``content`` names the images."""
    items = domain.items
    assert not isinstance(items, Undecoded)
    place = features_path(content, encoder, preprocessing, cache)

    def write(folder: Path) -> Json:
        # Of several processes one does this while the others wait for the lock.
        loader = Loader(items, everything(len(domain)), preprocessing, device, EVALUATION_BATCH, alone=True)
        watcher.begin(f"features of {domain.name}", len(domain), "images")
        parts = []
        with evaluating(encoder) as fast:
            for batch in loader.sweep("test"):
                parts.append(fast(batch.images).float().cpu().numpy())
                watcher.advance(len(batch), images=len(batch))
        np.save(folder / NAME, np.concatenate(parts))
        watcher.end()
        return {"images": len(domain)}

    open_entry(place, write, 0, "Set COSDA_CACHE to another folder.")
    return replace(domain, items=np.load(place / NAME, mmap_mode="r"))


def features_path(content: str, encoder: nn.Module, preprocessing: Preprocessing, cache: Path | None) -> Path:
    """Where the features of images lie, or will."""
    name = digest([content, weights_key(encoder), repr(preprocessing)])
    return cache_folder(cache) / "features" / name
