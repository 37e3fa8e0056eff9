"""CoTTA: Continual Test-Time Domain Adaptation. Wang et al., CVPR 2022, https://arxiv.org/abs/2203.13591

A slow teacher labels the new domain; where the source model is not confident of a batch, its labels are the mean over
many augmentations of it. The student learns the labels, and after each update a few of its weights, picked at random,
go back to those of the source model, so that it never strays far. The teacher is the model that is measured and handed
on. It keeps the teacher between epochs, and the source model along the whole chain.

The default is the offline form of the CoSDA paper's study (https://arxiv.org/abs/2304.06627): the teacher takes in
the student once an epoch as in CoSDA, the student restarts from it, labels are sharpened and gated by confidence.
`variant="authors"` is that of the study's code: weights go back to those of the model with which the stage began, and
the teacher's confidence decides on augmenting. `variant="original-step"` is a step as the CoTTA paper has it: they meet
at every step, and every label counts as it is. The original's recipe around it, one pass over a stream of test batches
with an optimiser and statistics of its own, is not here.

Where we depart from the study's code, in all variants: the classifier is restored like all else (there the
weight-normed one never is); images are augmented as images (there after normalisation, where gamma clips away all that
is darker than the mean); a batch without a confident image costs nothing (there 0/0).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from cosda import losses
from cosda.methods.base import Progress, TargetImages, module_state
from cosda.methods.teacher import TeacherMethod
from cosda.models.network import Network, freeze
from cosda.models.statistics import batch_statistics
from cosda.parts.augment import Augmentation, lend, normal_like
from cosda.settings import setting
from cosda.types import Batch, Losses


@dataclass
class CoTTA(TeacherMethod):
    """Augmentation-averaged labels and stochastic restore. Default numbers are the study's for Office-Home."""

    title: ClassVar[str] = "augmentation-averaged teacher, weights restored to the source at random"
    variants: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "authors": {"confidence_of": "teacher", "anchor": "stage"},
        "original-step": {
            "meeting": "step",
            "restart": False,
            "momentum": (0.999, 0.999),
            "statistics_momentum": (0.999, 0.999),
            "temperature": 1.0,
            "gate": (0.0, 0.0),
        },
    }

    augmentations: int = setting(32, "augmented views over which the teacher's logits are averaged; 0 is none", low=0)
    ap: float = setting(0.92, "augment where a batch's mean confidence is below this", low=0, high=1)
    confidence_of: Literal["source", "teacher"] = setting("source", "whose confidence decides on augmenting")
    per_image: bool = setting(False, "each image draws its own augmentation, not one for the batch")
    feature_noise: float = setting(0.0, "feature vectors: deviation of the noise that stands for augmentation", low=0)
    restore: float = setting(0.01, "share of weights that go back to the source after each update", low=0, high=1)
    anchor: Literal["source", "stage"] = setting("source", "restore to the source, or to the stage's first model")
    temperature: float = setting(0.3, "sharpness of the teacher's labels", low=1e-6, symbol="τ")
    gate: tuple[float, float] = setting(
        (0.3, 0.5), "learn only labels whose confidence exceeds this; from first to last epoch",
        low=0, high=1, symbol="κ",
    )  # fmt: skip
    restart: bool = setting(True, "the student restarts from the teacher after each epoch")
    statistics_momentum: tuple[float, float] | None = setting(
        (0.95, 0.99), "the same for BatchNorm statistics; 'none' takes that of the weights", low=0, high=1
    )

    def setup(self, student: Network, loader: TargetImages) -> None:
        """The first model ever seen is the source."""
        super().setup(student, loader)
        source: Network | None = getattr(self, "source", None)
        if source is None or self.anchor == "stage":
            source = copy.deepcopy(student)
            freeze(source).eval()
        self.source = source
        self.augment = Augmentation(per_image=self.per_image)

    def begin_epoch(self, progress: Progress) -> None:
        """The confidence that a label needs in this epoch."""
        super().begin_epoch(progress)
        self.threshold = progress.between(*self.gate)

    def step(self, batch: Batch) -> Losses:
        """q = softmax(z / τ), learnt where max softmax(z) > κ."""
        with torch.no_grad():
            logits = self._label(batch.images)
            labels = F.softmax(logits / self.temperature, dim=1)
            kept = F.softmax(logits, dim=1).amax(dim=1) > self.threshold
        output = self.student(batch.images)
        return {"consistency": losses.consistency(output.logits, labels, kept.to(labels.dtype))}

    @torch.no_grad()
    def after_update(self) -> None:
        """Stochastic restore; in the original the teacher takes in the student just before it."""
        super().after_update()
        if not self.restore:
            return
        trained = {id(parameter) for group in self.parameters() for parameter in group.parameters}
        rng = lend(self.progress.rng, next(self.student.parameters()).device)
        for own, source in zip(self.student.parameters(), self.source.parameters(), strict=True):
            if id(own) in trained:
                back = torch.rand(own.shape, generator=rng, device=own.device) < self.restore
                own.copy_(torch.where(back, source, own))

    def state_dict(self) -> dict[str, Any]:
        """The teacher, and the source: a run that goes on in a later stage never sees it again."""
        return {**super().state_dict(), "source": module_state(self.source)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Both."""
        super().load_state_dict(state)
        self.source.load_state_dict(state["source"])

    def _label(self, images: Tensor) -> Tensor:
        """The teacher's logits, averaged over augmentations where the batch's mean confidence is low."""
        teacher, clean = self.pair.teacher, None
        if self.augmentations and self.ap and (images.dim() == 4 or self.feature_noise):
            judged = _look(self.source if self.confidence_of == "source" else teacher, images)
            if F.softmax(judged, dim=1).amax(dim=1).mean() < self.ap:
                views = (self._augmented(images) for _ in range(self.augmentations))
                return torch.stack([_look(teacher, view) for view in views]).mean(dim=0)
            clean = judged if self.confidence_of == "teacher" else None
        return _look(teacher, images) if clean is None else clean

    def _augmented(self, images: Tensor) -> Tensor:
        rng = self.progress.rng
        if images.dim() == 4:
            return self.augment(images, self.loader.preprocessing, rng)
        return images + self.feature_noise * normal_like(images, rng)


def _look(network: Network, images: Tensor) -> Tensor:
    """Logits with the batch's own BatchNorm statistics, as CoTTA normalises everywhere."""
    with batch_statistics(network):
        return network(images).logits
