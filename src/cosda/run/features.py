"""Features of a frozen encoder: computed once for each image, and cached."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from torch import nn

from cosda.data.cache import default_cache
from cosda.data.domain import Domain, Undecoded, everything
from cosda.data.loader import Loader
from cosda.files import digest, write_atomically
from cosda.models.artifact import weights_key
from cosda.models.bn_folding import evaluating
from cosda.preprocessing import Preprocessing
from cosda.run.evaluate import EVALUATION_BATCH
from cosda.watch import Watcher


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
    assert not isinstance(domain.items, Undecoded)
    path = features_path(content, encoder, preprocessing, cache)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            # Of several processes one does this while the others wait for the lock.
            loader = Loader(domain.items, everything(len(domain)), preprocessing, device, EVALUATION_BATCH, alone=True)
            watcher.begin(f"features of {domain.name}", len(domain), "images")
            parts = []
            with evaluating(encoder) as fast:
                for batch in loader.sweep("test"):
                    parts.append(fast(batch.images).float().cpu().numpy())
                    watcher.advance(len(batch), images=len(batch))
            write_atomically(path, lambda new: _save(new, np.concatenate(parts)))
            watcher.end()
    return replace(domain, items=np.load(path, mmap_mode="r"))


def _save(path: Path, features: NDArray[np.float32]) -> None:
    with path.open("wb") as file:  # given a name, numpy would add its own ending to it
        np.save(file, features)


def features_path(content: str, encoder: nn.Module, preprocessing: Preprocessing, cache: Path | None) -> Path:
    """Where the features of images lie, or will."""
    name = digest([content, weights_key(encoder), repr(preprocessing)])
    return (cache or default_cache()) / "features" / f"{name}.npy"
