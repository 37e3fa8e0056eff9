"""Divide and Contrast: Source-free Domain Adaptation via Adaptive Contrastive Learning. Zhang et al., NeurIPS 2022,
https://arxiv.org/abs/2211.06612

The target's images are divided. Those that the model is confident of are source-like, and all source-like images of a
class form one group in a memory of features; every other image is target-specific and a group of its own. Each
image is drawn to its group and pushed from all others (adaptive contrast), so classes are learnt where the model is
right and local structure where it may not be. A second term brings the two parts of each class together (class-wise
EMMD), a third learns centroid pseudo-labels on one weak and two strong views, a fourth keeps predictions confident and
diverse. The classifier is frozen. Between epochs it keeps the memory V and the group ℓ of each image; pseudo-labels
are made anew.

Where we depart from the authors of CoSDA: pseudo-labels come from the target's training images (on DomainNet theirs
come from the test split, at the indices of the training split); the memory's losses begin with the first batch after
warm-up (theirs with the second); the memory is updated after the step and not inside the backward pass; one pass over
the images gives the memory's first features and the labels (theirs makes the memory from weak views).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from cosda import losses
from cosda.methods.base import Group, Method, Progress, TargetImages, trained
from cosda.models.network import Network
from cosda.parts.bank import nearest
from cosda.parts.prototypes import centroid_labels, see_all
from cosda.settings import setting
from cosda.types import Batch, Losses


@dataclass
class DaC(Method):
    """Adaptive contrast over a memory that is divided into source-like and target-specific images."""

    title: ClassVar[str] = "divide and contrast: a memory of source-like and target-specific images"
    views: ClassVar[tuple[str, ...]] = ("weak", "strong", "strong")

    cross_entropy: float = setting(0.02, "weight of the pseudo-labels on all three views", low=0)
    information: float = setting(0.25, "weight of the mutual-information loss on the weak view", low=0)
    contrast: float = setting(0.03, "weight of the adaptive contrast", low=0)
    mmd: float = setting(0.15, "weight of the class-wise discrepancy between the two parts", low=0)
    warm_up: int = setting(1, "epochs before the memory is made, with the mutual-information loss alone", low=0)
    warm_up_labels: bool = setting(False, "learn pseudo-labels in warm-up too (the original's code outside VisDA)")
    confident: int = setting(40, "most confident images of each class that begin as source-like", low=0, symbol="K")
    neighbours: int = setting(5, "rows of the memory in an image's local score", low=1, symbol="k")
    keep: float = setting(0.8, "share of a row of the memory that stays at an update", low=0, high=1, symbol="m")
    gate: float = setting(0.97, "confidence at which an image becomes source-like for good", low=0, high=1)
    temperature: float = setting(
        0.05, "sharpness of the similarity of features", low=0.02, symbol="T"
    )  # e^(1/T) must fit a float

    def setup(self, student: Network, loader: TargetImages) -> None:
        """Every target domain has its own memory."""
        super().setup(student, loader)
        self.memory: Tensor | None = None  # V (N, d), rows of length 1
        self.groups: Tensor | None = None  # ℓ (N,): the class if source-like, C + own index if target-specific
        self.fresh: tuple[Tensor, Tensor] | None = None  # index and features with which a step will update the memory

    def parameters(self) -> list[Group]:
        """All but the classifier."""
        return trained(self.student, {"encoder": self.encoder_rate, "classifier": 0})

    def begin_epoch(self, progress: Progress) -> None:
        """Label the training images, each by its index; divide them once warm-up is over."""
        super().begin_epoch(progress)
        self.warming = progress.epoch < self.warm_up
        self.fresh = None
        if self.warming and not self.warm_up_labels:
            return
        seen = see_all(self.student, self.loader)
        p = seen.logits.softmax(dim=1)
        self.labels, self.classes = centroid_labels(seen.features, p, admissible_from="first"), p.shape[1]  # ŷ (N,)
        if self.memory is None and not self.warming:
            self.memory, self.groups = F.normalize(seen.features), divide(p, self.confident)

    def step(self, batch: Batch) -> Losses:
        """Divide the batch, then the four terms; the memory's two need o_ij = ⟨u_i, V_j⟩ / T."""
        unlabelled = self.warming and not self.warm_up_labels
        weak = self.student(batch.images)
        with torch.set_grad_enabled(not unlabelled):  # in warm-up too BatchNorm sees all three views
            one, two = self.student(batch.views[1]), self.student(batch.views[2])
        terms = {"information": self.information * losses.negative_information(weak.logits)}
        if unlabelled:
            return terms
        labels = self.labels[batch.index]
        entropies = [F.cross_entropy(view.logits, labels) for view in (weak, one, two)]
        terms["cross_entropy"] = self.cross_entropy * torch.stack(entropies).sum()
        if self.warming:
            return terms

        assert self.memory is not None
        assert self.groups is not None
        confidence, best = weak.logits.detach().softmax(dim=1).max(dim=1)
        self.groups[batch.index] = torch.where(confidence >= self.gate, best, self.groups[batch.index])
        u, u1, u2 = (F.normalize(view.features) for view in (weak, one, two))
        similarity = u @ self.memory.T / self.temperature  # o (B, N)
        near = nearest(u.detach(), self.memory, self.neighbours)  # (B, k), an image's own row among them
        local = (u * (u1 + u2)).sum(dim=1) / (2 * self.temperature) + similarity.gather(1, near).sum(dim=1)
        # Only ids that exist get a column: at most N instead of C + N.
        dense = torch.unique(self.groups, return_inverse=True)[1]
        contrast = losses.adaptive_contrast(similarity, local, dense, dense[batch.index], near.shape[1] + 1)
        mmd = losses.classwise_mmd(similarity, self.labels, self.groups < self.classes, batch.index, self.classes)
        self.fresh = batch.index, u.detach()
        return {**terms, "contrast": self.contrast * contrast, "mmd": self.mmd * mmd}

    @torch.no_grad()
    def after_update(self) -> None:
        """V_i ← n(m·V_i + (1 - m)·u_i) for the images of the batch."""
        if self.memory is not None and self.fresh is not None:
            index, u = self.fresh
            self.memory[index] = F.normalize(self.keep * self.memory[index] + (1 - self.keep) * u)

    def state_dict(self) -> dict[str, Any]:
        """The memory, once there is one."""
        return {} if self.memory is None else {"memory": self.memory, "groups": self.groups}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The memory."""
        device = next(self.student.parameters()).device
        loaded = (state.get(name) for name in ("memory", "groups"))
        self.memory, self.groups = (None if one is None else one.to(device, copy=True) for one in loaded)


def divide(p: Tensor, confident: int) -> Tensor:
    """ℓ (N,): the most confident images of each class get the class (the later of two claims), others C + index."""
    count, classes = p.shape
    groups = classes + torch.arange(count, device=p.device)
    best = p.topk(min(confident, count), dim=0).indices  # (K, C)
    for c in range(classes):
        groups[best[:, c]] = c
    return groups
