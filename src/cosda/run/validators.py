"""Label-free scores of a model, from its predictions on the target's training images; the larger, the better.

`cosda.records.selection` has their names and meanings. A `Selector` scores every epoch of a stage and keeps the
model that the run's rule prefers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from cosda.data.loader import Loader
from cosda.models.network import Network
from cosda.randomness import derive
from cosda.records.selection import Candidate
from cosda.run.evaluate import outputs

SND_TEMPERATURE = 0.05  # Saito et al., ICCV 2021, https://arxiv.org/abs/2108.10860


class Selector:
    """What a stage hands on, by a rule of `cosda.records.selection`."""

    def __init__(self, rule: str, incoming: Network, loader: Loader, most: int) -> None:
        """``incoming`` is the model that the stage begins with, and stays so; at most so many images are judged."""
        self.rule = rule
        self.incoming = incoming
        self.loader = sample(loader, most)
        self.best: dict[str, Any] | None = None  # epoch, worth and model; a checkpoint holds it

    @cached_property
    def before(self) -> Tensor:
        """The classes that the incoming model gives; found when first needed, so that training can begin at once."""
        return predict(self.incoming, self.loader).argmax(dim=1)

    def scores(self, network: Network, seen: Tensor | None = None) -> dict[str, float]:
        """All validators of a model, or of what it has ``seen``; none where no image may be judged."""
        if not len(self.loader):
            return {}
        return scores(predict(network, self.loader) if seen is None else seen, self.before)

    def consider(self, candidate: Candidate, model: Callable[[], dict[str, Any]]) -> None:
        """Keep a copy of the model if it is the best so far; by the rule `last` there is no need for one."""
        worth = candidate.worth(self.rule)
        if self.rule != "last" and worth is not None and (self.best is None or worth >= self.best["worth"]):
            self.best = {"epoch": candidate.epoch, "worth": worth, "model": model()}


def sample(loader: Loader, most: int) -> Loader:
    """The images that are judged: all, or a random sample that stays the same from epoch to epoch."""
    if most >= len(loader):
        return loader
    generator = torch.Generator().manual_seed(derive(loader.seed, "validators"))
    chosen = torch.randperm(len(loader), generator=generator)[:most].sort().values
    return replace(loader, positions=loader.positions[chosen.numpy()])


def predict(network: Network, loader: Loader) -> Tensor:
    """Class probabilities (N, C), in double precision because the scores of two epochs may be close."""
    return torch.cat([output.logits.double().softmax(dim=1) for _, output in outputs(network, loader)])


def scores(p: Tensor, before: Tensor) -> dict[str, float]:
    """All validators, from predictions (N, C) and the classes (N,) that the stage's first model gave."""
    found = {
        "information": information(p),
        "snd": neighbourhood_density(p),
        "nuclear_norm": nuclear_norm(p),
        "entropy": -entropy(p).mean(),
        "agreement": (p.argmax(dim=1) == before).double().mean(),
    }
    return {name: float(value) for name, value in found.items()}


def information(p: Tensor) -> Tensor:
    """Entropy of the mean prediction minus mean entropy of the predictions."""
    return entropy(p.mean(dim=0)) - entropy(p).mean()


def entropy(p: Tensor) -> Tensor:
    """-Σ p log p over the last dimension."""
    return torch.special.entr(p).sum(dim=-1)  # type: ignore[no-any-return]


def neighbourhood_density(p: Tensor) -> Tensor:
    """Mean entropy of softmax(⟨p_i, p_j⟩ / T) over the others j; an image is not its own neighbour."""
    if len(p) < 2:
        return p.new_zeros(())
    unit = F.normalize(p)
    similarity = (unit @ unit.T / SND_TEMPERATURE).fill_diagonal_(-torch.inf)
    return entropy(similarity.softmax(dim=1)).mean()


def nuclear_norm(p: Tensor) -> Tensor:
    """‖P‖_* / √(N · min(N, C)): 1 where predictions are confident and spread evenly over the classes."""
    count, classes = p.shape
    norm: Tensor = torch.linalg.matrix_norm(p, "nuc")
    return norm / math.sqrt(count * min(count, classes))
