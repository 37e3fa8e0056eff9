"""SHOT's pseudo-labels: the nearest of class centroids that are made of the target's own features.

Labels belong to images, so everything here is kept by the image's index and never in the order in which images
happened to come. (CoSDA's authors visit a shuffled loader and look labels up by index, which makes them random.)
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from cosda.models.bn_folding import evaluating
from cosda.models.network import Network
from cosda.parts.bank import Sweepable
from cosda.types import Output


def see_all(network: Network, loader: Sweepable, view: str = "test") -> Output:
    """Features (N, d) and logits (N, C) of all images by their index, from one pass in eval mode."""
    features, logits, index = [], [], []
    with evaluating(network) as fast:
        for batch in loader.sweep(view):
            output = fast(batch.images)
            features.append(output.features)
            logits.append(output.logits)
            index.append(batch.index)
    place = torch.cat(index)
    return Output(_by_index(torch.cat(features), place), _by_index(torch.cat(logits), place))


def _by_index(rows: Tensor, index: Tensor) -> Tensor:
    return torch.empty_like(rows).index_copy_(0, index, rows)


def label_images(
    network: Network,
    loader: Sweepable,
    threshold: int = 0,
    admissible_from: Literal["first", "second"] = "second",
    view: str = "test",
) -> Tensor:
    """Pseudo-labels (N,) of all images by their index."""
    seen = see_all(network, loader, view)
    return centroid_labels(seen.features, seen.logits.softmax(dim=1), threshold, admissible_from)


@torch.no_grad()
def centroid_labels(
    features: Tensor,
    probabilities: Tensor,
    threshold: int = 0,
    admissible_from: Literal["first", "second"] = "second",
) -> Tensor:
    """Labels (N,) from features (N, d) and probabilities (N, C) in two rounds of nearest centroids.

    φ_i = [f_i ; 1] at length 1. Round one: c_k = Σ_i p_ik φ_i / Σ_i p_ik, and the labels are the nearest c_k by cosine
    among the admissible classes, those that more than ``threshold`` images are predicted to be. Round two: the same
    with one-hot labels for p, and the classes admissible by these labels (``second``) or still by the predictions
    (``first``, as DaC has it). A class that nobody belongs to has no centroid and is never a label. (In DaC's code its
    cosine distance is not a number, which `argmin` takes for the smallest: every image would get this class.)
    """
    φ = F.normalize(torch.cat([features, features.new_ones(len(features), 1)], dim=1))
    predicted = _count(probabilities.argmax(dim=1), probabilities)
    admissible = _admissible(predicted, threshold)
    labels = _nearest(φ, probabilities, admissible)
    members = _count(labels, probabilities)
    admissible = _admissible(members, threshold) if admissible_from == "second" else admissible & (members > 0)
    return _nearest(φ, F.one_hot(labels, probabilities.shape[1]).to(φ.dtype), admissible)


def _count(labels: Tensor, probabilities: Tensor) -> Tensor:
    return torch.bincount(labels, minlength=probabilities.shape[1])


def _admissible(members: Tensor, threshold: int) -> Tensor:
    """Classes with more than ``threshold`` members; where that leaves none, those with any."""
    enough = members > threshold
    return enough if bool(enough.any()) else members > 0


def _nearest(φ: Tensor, shares: Tensor, admissible: Tensor) -> Tensor:
    """The class (N,) of the most similar centroid."""
    centroids = (shares.T @ φ) / (1e-8 + shares.sum(dim=0))[:, None]
    similarity = φ @ F.normalize(centroids).T
    return similarity.masked_fill(~admissible, -torch.inf).argmax(dim=1)
