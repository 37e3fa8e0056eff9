"""Which epoch of a stage becomes the adapted model, while it is trained: by a rule of `cosda.records.selection`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cosda.data.loader import Loader
from cosda.models.network import Network
from cosda.randomness import derive
from cosda.records.selection import Candidate, prefers
from cosda.run.evaluate import outputs
from cosda.validators import scores


class Selector:
    """Scores every epoch without labels, and keeps the model that the run's rule prefers."""

    def __init__(self, rule: str, incoming: Network, images: Loader, most: int) -> None:
        """``incoming`` is the model that the stage begins with, and stays so; at most so many images are judged."""
        self.rule = rule
        self.incoming = incoming
        self.images = sample(images, most)
        self.best: dict[str, Any] | None = None  # epoch, worth and model; a checkpoint holds it

    @cached_property
    def before(self) -> Tensor:
        """The classes that the incoming model gives; found when first needed, so that training can begin at once."""
        return predict(self.incoming, self.images).argmax(dim=1)

    def scores(self, network: Network, seen: Tensor | None = None) -> dict[str, float]:
        """All validators of a model, or of what it has ``seen``; none where no image may be judged."""
        if not len(self.images):
            return {}
        return scores(predict(network, self.images) if seen is None else seen, self.before)

    def consider(self, candidate: Candidate, model: Callable[[], dict[str, Any]]) -> None:
        """Keep a copy of the model if it is the best so far; by the rule `last` there is no need for one."""
        worth = candidate.worth(self.rule)
        if self.rule != "last" and worth is not None and (self.best is None or prefers(worth, self.best["worth"])):
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
