"""SHOT++: Source Data-absent Unsupervised Domain Adaptation through Hypothesis Transfer and Labeling Transfer.
Liang, Hu, Wang, He, Feng, 2021, https://arxiv.org/abs/2012.07297

SHOT with a second task: tell by how many quarter turns an image was rotated, from its features before and after. The
head for it is trained on the carried model, anew for each target, and then goes on learning with the student. Beyond
the student it keeps this head and, in the optional last part, which images are labelled. That part (`mixmatch`) is
in the original and not in CoSDA's study: the most confident images become labelled ones, and a student with a new
classifier learns from them and from the others as in MixMatch. Feature vectors cannot be rotated: there it equals SHOT.

Where we depart from the code of both: the best head is a copy, theirs goes on changing and is the last; f(x) is taken
from the pass that SHOT makes anyway. MixMatch takes the last epochs of one training, with labelled and unlabelled
images as they come in a batch, not as many of each; its ramp rises once an epoch; all rows pass the network at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cosda import losses
from cosda.errors import CosdaError
from cosda.methods.base import Group, Progress, TargetImages, module_state, trained
from cosda.methods.shot import SHOT
from cosda.models.bn_folding import evaluating
from cosda.models.network import Network
from cosda.parts.mixmatch import UNKNOWN, confident_labels, guess, mix, renew
from cosda.parts.prototypes import see_all
from cosda.parts.rotation import draw_turns, new_head, rotate, rotation_loss, train_head
from cosda.settings import setting
from cosda.types import Batch, Losses


@dataclass
class SHOTPlus(SHOT):
    """SHOT, the rotation task, and MixMatch as an option."""

    title: ClassVar[str] = "SHOT with a rotation task (and MixMatch as an option)"
    variants: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "authors": {"label_view": "weak", "rotation_weight_norm": True, "rotation_epochs": 20},
    }

    rotation: float = setting(0.6, "weight of the rotation task", low=0)
    rotation_epochs: int = setting(15, "epochs in which the rotation head is made ready", low=0)
    rotation_rate: float = setting(1e-2, "learning rate of the rotation head while it is made ready", low=0)
    rotation_weight_norm: bool = setting(False, "a weight-normed rotation head")
    mixmatch: bool = setting(False, "end with the original's MixMatch, where confident predictions become labels")
    mixmatch_epochs: int = setting(10, "how many of the epochs, the last ones, are MixMatch's", low=1)
    mixmatch_temperature: float = setting(0.5, "sharpness of guessed labels", low=1e-6, symbol="T")
    mixmatch_beta: float = setting(0.75, "mixing shares come from Beta(a, a), folded", low=0, symbol="a")
    mixmatch_weight: float = setting(100.0, "weight of unlabelled images at the end of the ramp", low=0)

    @property
    def views(self) -> tuple[str, ...]:  # type: ignore[override]
        """MixMatch guesses labels from two views."""
        return ("weak", "weak") if self.mixmatch else ("weak",)

    def setup(self, student: Network, loader: TargetImages) -> None:
        """A new head for the new target; it is trained when the first epoch begins, unless a resume brings it."""
        super().setup(student, loader)
        self.known: Tensor | None = None  # (N,) MixMatch's labels by the image's index
        self.head: nn.Module | None = None
        self.head_ready = False
        images = next(iter(loader.sweep("weak"))).images
        if self.rotation and images.dim() == 4:
            with evaluating(student) as fast:
                width = fast(images[:1]).features.shape[1]
            self.head = new_head(width, self.rotation_weight_norm, images.device)

    def parameters(self) -> list[Group]:
        """As SHOT, and the head; MixMatch trains the classifier too, which has no gradient before."""
        groups = trained(self.student, {"encoder": self.encoder_rate, "classifier": float(self.mixmatch)})
        return groups + ([Group("rotation", list(self.head.parameters()), 1.0)] if self.head else [])

    def begin_epoch(self, progress: Progress) -> None:
        """Make the head ready once; split the images and renew the classifier where MixMatch begins."""
        self.done = progress.epoch - (progress.epochs - self.mixmatch_epochs)  # epochs of MixMatch before this one
        if self.mixmatch and self.done >= progress.epoch:
            raise CosdaError(
                f"mixmatch_epochs = {self.mixmatch_epochs} leaves none of {progress.epochs} epochs to SHOT; lower it."
            )
        if not self.mixmatch or self.done < 0:
            super().begin_epoch(progress)
            if self.head is not None and not self.head_ready:
                train_head(self.head, self.student, self.loader, self.rotation_epochs, self.rotation_rate, progress.rng)
                self.head_ready = True
            return
        self.progress = progress
        self.student.train()
        if self.known is None:
            self.known = confident_labels(see_all(self.student, self.loader).logits)
            renew(self.student.classifier, progress.rng)

    def step(self, batch: Batch) -> Losses:
        """SHOT's loss + 0.6·CE(r([sg f(x) ; f(rot_k x)]), k); or that of MixMatch."""
        if self.known is not None:
            return self._mixmatch(batch, self.known[batch.index])
        output = self.student(batch.images)
        terms = self._terms(batch, output)
        if self.head is not None:
            turns = draw_turns(len(batch), self.progress.rng, batch.images.device)
            turned = self.student(rotate(batch.images, turns)).features
            terms["rotation"] = self.rotation * rotation_loss(self.head, output.features.detach(), turned, turns)
        return terms

    def before_update(self) -> None:
        """MixMatch trains its new classifier."""
        if self.known is None:
            super().before_update()

    def state_dict(self) -> dict[str, Any]:
        """The head, once it is ready, and MixMatch's labels, once they are made."""
        state: dict[str, Any] = {"head": module_state(self.head)} if self.head and self.head_ready else {}
        return state if self.known is None else state | {"known": self.known}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The same."""
        if self.head is not None and "head" in state:
            self.head.load_state_dict(state["head"])
            self.head_ready = True
        if "known" in state:
            self.known = state["known"].to(next(self.student.parameters()).device)

    def _mixmatch(self, batch: Batch, labels: Tensor) -> Losses:
        """Soft cross-entropy where a label is known, squared error where it is guessed, with a rising weight."""
        first, second = (view[labels == UNKNOWN] for view in batch.views)
        guesses = guess(self.student, first, second, self.mixmatch_temperature)
        mixed = mix(batch.views, labels, guesses, self.mixmatch_beta, self.progress.rng)
        logits, n = self.student(mixed.images).logits, mixed.labelled
        terms = {"labelled": losses.consistency(logits[:n], mixed.labels[:n], torch.ones_like(logits[:n, 0]))}
        if len(logits) > n:
            ramp = self.mixmatch_weight * (self.done + 0.5) / self.mixmatch_epochs  # the mean of the ramp in this epoch
            terms["unlabelled"] = ramp * (logits[n:].softmax(dim=1) - mixed.labels[n:]).square().mean()
        return terms
