"""Measuring and predicting: passes over images in eval mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosda.data.domain import Index
from cosda.data.loader import Loader
from cosda.errors import Diverged
from cosda.models.bn_folding import evaluating
from cosda.models.finite import about_inputs, largest
from cosda.models.network import Network
from cosda.types import Output

EVALUATION_BATCH = 128
EMBEDDED = 150  # images of each domain whose features are kept for the report's t-SNE
COMPONENTS = 50  # principal components of them, as is usual before t-SNE


def outputs(network: Network, loader: Loader) -> Iterator[tuple[Tensor, Output]]:
    """The network's output for all images, batch by batch, with their index."""
    with evaluating(network) as fast:
        for batch in loader.sweep("test"):
            yield batch.index, checked(fast(batch.images), batch.images)


def checked(output: Output, images: Tensor) -> Output:
    """An output for such images that consists of numbers; anything else is an error."""
    if not bool(output.logits.isfinite().all()):
        advice = about_inputs(largest(images)) or (
            "Its weights are too large to compute with: take an older model, or train it at a lower learning rate."
        )
        raise Diverged(f"the model is unusable: its predictions are not numbers. {advice}")
    return output


def told(network: Network, domain: str) -> Network:
    """A network that may be measured on a domain: told its name only where it cannot do without."""
    return network.for_domain(domain) if network.needs_domain else network


def probabilities(network: Network, loader: Loader) -> NDArray[np.float32]:
    """Class probabilities (N, C) of all images, in order."""
    parts = [output.logits.softmax(dim=1).cpu() for _, output in outputs(network, loader)]
    return torch.cat(parts).numpy()


def predicted_classes(network: Network, loader: Loader) -> Index:
    """The class (N,) that each image is taken for, in order."""
    return np.concatenate([output.logits.argmax(dim=1).cpu().numpy() for _, output in outputs(network, loader)])


def confusion(predicted: Index, labels: Index, classes: int) -> Index:
    """How many images of each class (rows) were taken for each class (columns)."""
    return np.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)


def measure(network: Network, loader: Loader, labels: Index, classes: int) -> tuple[list[int], list[int]]:
    """Images and correct predictions of each class; every accuracy follows from these counts."""
    return counts(confusion(predicted_classes(network, loader), labels, classes))


def counts(matrix: Index) -> tuple[list[int], list[int]]:
    """Images and correct predictions of each class, from their confusions."""
    return matrix.sum(axis=1).tolist(), matrix.diagonal().tolist()


def embed(
    network: Network, domains: list[tuple[int, Loader, Index | None]], seed: int, names: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """Features of a sample of each domain (number, images, labels), reduced to a few principal components.

    ``names`` are those of the domains by number, for networks that need them.
    """
    features: list[Tensor] = []
    origin: list[int] = []
    label: list[int] = []
    for number, loader, labels in domains:
        chosen = np.sort(np.random.default_rng(seed).permutation(len(loader))[:EMBEDDED])
        part = replace(loader, positions=loader.positions[chosen])
        seen = told(network, names[number]) if names else network
        features += [output.features.cpu() for _, output in outputs(seen, part)]
        origin += [number] * len(part)
        label += [-1] * len(part) if labels is None else labels[part.positions].tolist()
    stacked = torch.cat(features).double()
    stacked -= stacked.mean(dim=0)
    # By torch, which keeps to the run's number of threads; numpy would take all cores, also those of other runs.
    _, _, directions = torch.linalg.svd(stacked, full_matrices=False)
    return {
        "features": (stacked @ directions[:COMPONENTS].T).half().numpy(),
        "domain": np.asarray(origin, dtype=np.int16),
        "label": np.asarray(label, dtype=np.int32),
    }
