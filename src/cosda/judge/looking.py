"""What a model says of the images of a domain, seen as they are and in other views: all that judging needs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from cosda.data.loader import Loader
from cosda.models.bn_folding import evaluating
from cosda.models.network import Network
from cosda.randomness import stream
from cosda.run.evaluate import checked, outputs

VIEWS = 2  # other views of each image
NOISE = 0.3  # of noisy inputs, in units of the deviation of each number between images
DROPPED = 0.2  # share of a feature vector's numbers that another view of it lacks


@dataclass(frozen=True)
class Answers:
    """What a model says of N images."""

    logits: Tensor  # (N, C)
    features: Tensor  # (N, d)
    views: tuple[Tensor, ...]  # logits (N, C) of other views of the same images
    noisy: Tensor  # logits (N, C) of the same images with noise

    @property
    def probabilities(self) -> Tensor:
        """(N, C)."""
        return self.logits.softmax(dim=1)

    @property
    def classes(self) -> Tensor:
        """(N,) the class that each image is taken for."""
        return self.logits.argmax(dim=1)


def look(network: Network, images: Loader, views: int = VIEWS) -> Answers:
    """What a network says of all images, in order."""
    seen = [(output.logits.double().cpu(), output.features.float().cpu()) for _, output in outputs(network, images)]
    logits, features = (torch.cat(part) for part in zip(*seen, strict=True))
    other = tuple(_other_view(network, images, number) for number in range(views))
    return Answers(logits, features, other, _with_noise(network, images))


def _other_view(network: Network, images: Loader, number: int) -> Tensor:
    """Logits of a training view of each image; a feature vector loses some of its numbers instead."""
    found: list[Tensor] = []
    loader = replace(images, now=number)
    with evaluating(network) as fast:
        for batch in loader.sweep("weak"):
            inputs = batch.images
            if inputs.dim() == 2:
                kept = torch.rand(inputs.shape, generator=stream(images.seed, "dropped", number, len(found))) >= DROPPED
                inputs = torch.where(kept.to(inputs.device), inputs, inputs.mean(dim=0))
            found.append(checked(fast(inputs), inputs).logits.double().cpu())
    return torch.cat(found)


def _with_noise(network: Network, images: Loader) -> Tensor:
    """Logits of each image with noise in it."""
    found: list[Tensor] = []
    with evaluating(network) as fast:
        for batch in images.sweep("test"):
            inputs = batch.images
            noise = torch.randn(inputs.shape, generator=stream(images.seed, "noise", len(found))).to(inputs)
            inputs = inputs + NOISE * inputs.std(dim=0, correction=0) * noise
            found.append(checked(fast(inputs), inputs).logits.double().cpu())
    return torch.cat(found)


def neighbours_agree(answers: Answers, count: int = 5, most: int = 2000) -> float:
    """The share of images whose nearest neighbours among the others mostly have their class."""
    features, classes = F.normalize(answers.features[:most]), answers.classes[:most]
    if len(features) < 2:
        return 1.0
    similarity = (features @ features.T).fill_diagonal_(-2)
    nearest = similarity.topk(min(count, len(features) - 1), dim=1).indices
    votes = classes[nearest]
    return float((votes == classes[:, None]).double().mean())
