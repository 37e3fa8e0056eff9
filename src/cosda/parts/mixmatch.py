"""MixMatch as SHOT++ uses it: confident predictions are labels. Berthelot et al., 2019, https://arxiv.org/abs/1905.02249"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrize import is_parametrized

from cosda.errors import CosdaError
from cosda.losses import EPSILON
from cosda.models.network import Network
from cosda.parts.mixup import draw_mixing

UNKNOWN = -1  # the label of an image that has none


class Mixed(NamedTuple):
    """Mixed-up images and their soft labels; the first ``labelled`` rows come from labelled images."""

    images: Tensor
    labels: Tensor
    labelled: int


def confident_labels(logits: Tensor) -> Tensor:
    """The predicted class (N,) of the most confident images of each class, UNKNOWN for the others.

    ρ is the share of images whose entropy is below the mean; of each class the ⌊ρ·n_c⌋ of least entropy become
    labelled, so that an easy class does not take all the places.
    """
    p = F.softmax(logits, dim=1)
    entropy = -(p * torch.log(p + EPSILON)).sum(dim=1)
    share = float((entropy < entropy.mean()).double().mean())
    predicted = p.argmax(dim=1)
    labels = torch.full_like(predicted, UNKNOWN)
    for c in range(logits.shape[1]):
        members = (predicted == c).nonzero()[:, 0]
        ordered = members[entropy[members].argsort(stable=True)]
        labels[ordered[: math.floor(share * len(members))]] = c
    return labels


@torch.no_grad()
def guess(student: Network, first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Labels (U, C) for unlabelled images: the mean prediction for two views, to the power 1/T, at sum 1.

    Each view is a batch of its own, as in the original, so BatchNorm normalises each with its own statistics. A single
    image has none: then both views are one batch.
    """
    if len(first) == 0:  # BatchNorm would refuse an empty batch
        return first.new_empty(0, int(student.classifier.out_features))  # type: ignore[arg-type]
    batches = [first, second] if len(first) > 1 else [torch.cat([first, second])]
    p: Tensor = torch.cat([student(batch).logits.softmax(dim=1) for batch in batches])
    mean = (p[: len(first)] + p[len(first) :]) / 2
    sharp = mean ** (1 / temperature)
    return sharp / sharp.sum(dim=1, keepdim=True)


def mix(views: tuple[Tensor, ...], labels: Tensor, guesses: Tensor, beta: float, rng: torch.Generator) -> Mixed:
    """Labelled images and two views of the others, with labels (B,) or guesses (U, C), each mixed with any of them.

    All rows then pass the network as one batch. So BatchNorm sees labelled and unlabelled images together, which the
    original reaches by interleaving three smaller batches.
    """
    known = labels != UNKNOWN
    images = torch.cat([views[0][known], views[0][~known], views[1][~known]])
    soft = torch.cat([F.one_hot(labels[known], guesses.shape[1]).to(guesses.dtype), guesses, guesses])
    mixing = draw_mixing(len(images), beta, True, rng, images.device)
    return Mixed(mixing.images(images), mixing.images(soft), int(known.sum()))


@torch.no_grad()
def renew(classifier: nn.Module, rng: torch.Generator) -> None:
    """Give a linear classifier new weights, within its own tensors, because the optimiser holds them."""
    if not isinstance(classifier, nn.Linear):
        raise CosdaError(
            f"MixMatch needs a linear classifier to begin anew, and this one is {type(classifier).__name__}."
        )
    bound = 1 / math.sqrt(classifier.in_features)  # torch's own initialisation of a linear layer
    weight = torch.empty(classifier.weight.shape).uniform_(-bound, bound, generator=rng).to(classifier.weight)
    if is_parametrized(classifier, "weight"):
        classifier.weight = weight  # weight norm splits it into magnitude and direction
    else:
        classifier.weight.copy_(weight)
    classifier.bias.zero_()
