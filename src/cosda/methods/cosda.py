"""CoSDA: Continual Source-Free Domain Adaptation. Feng et al., 2023, https://arxiv.org/abs/2304.06627

A slow teacher labels the new domain; a fast student learns these labels on mixed-up images, with a term that
keeps its predictions confident and diverse; once per epoch the teacher takes in the student, weights and BatchNorm
statistics, slowly. The teacher is the model that is measured and handed to the next domain. Between epochs it
keeps the teacher; the student goes on (Algorithm 1) or restarts from the teacher (the authors' code).

Where we depart from the printed paper: the mutual-information loss has the sign that maximises information (the
paper's maximises its opposite, its code does not); momentum starts at 0.90 as its text says (its formula at 0.89);
a batch without a confident image has no consistency term (in the authors' code its loss is 0/0).
`variant="paper"` is Algorithm 1 with these corrections; `variant="authors"` adds what only their code does, and on a
benchmark the numbers of their configurations (on Office-31 α = 0 and 40 epochs);
`variant="default"` is Algorithm 1 with two things of that code that cost nothing: the gate, and statistics slower than
the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch.nn import functional as F

from cosda import losses
from cosda.methods.base import Objective, Progress, TargetImages
from cosda.methods.teacher import TeacherMethod
from cosda.models.network import Network
from cosda.models.statistics import batch_statistics
from cosda.parts.mixup import draw_mixing
from cosda.settings import setting
from cosda.types import Batch, Losses, Output, Target

# Of the authors' code.
GATE = (0.5, 0.7)
SLOW_STATISTICS = (0.95, 0.99)


@dataclass
class TeacherLabels:
    """CoSDA's own objective: the teacher's sharpened prediction, where it is confident."""

    temperature: float
    weight: float
    gate: tuple[float, float]

    def begin_epoch(self, progress: Progress) -> None:
        """The confidence that a label needs in this epoch."""
        self.threshold = progress.between(*self.gate)

    def label(self, batch: Batch, seen: Output) -> Target:
        """q = softmax(z / τ), with weight 1 where max softmax(z) > κ."""
        labels = F.softmax(seen.logits / self.temperature, dim=1)
        confident = F.softmax(seen.logits, dim=1).amax(dim=1) > self.threshold
        return Target(labels[:, None], confident[:, None].to(labels.dtype))

    def losses(self, output: Output, target: Target) -> Losses:
        """KL(q̃ ‖ p̃) up to a constant."""
        return {
            "consistency": self.weight * losses.consistency(output.logits, target.labels[:, 0], target.weights[:, 0])
        }


@dataclass
class CoSDA(TeacherMethod):
    """Dual-speed teacher and student with mixed-up consistency and mutual information."""

    title: ClassVar[str] = "dual-speed teacher and student (the paper's method)"
    variants: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"gate": GATE, "statistics_momentum": SLOW_STATISTICS},  # chosen in REPRODUCED.md, "Which CoSDA"
        "paper": {},
        "authors": {
            "gate": GATE,
            "statistics_momentum": SLOW_STATISTICS,
            "fold": True,
            "information_on": "clean",
            "restart": True,
        },
    }

    temperature: float = setting(0.07, "sharpness of the teacher's labels", low=1e-6, symbol="τ")
    mixup_beta: float = setting(2.0, "mixup shares come from Beta(a, a); 0 mixes nothing", low=0, symbol="a")
    fold: bool = setting(False, "use max(λ, 1-λ), so that an image keeps the larger share")
    consistency: float = setting(1.0, "weight of the consistency loss", low=0)
    information: float = setting(1.0, "weight of the mutual-information loss", low=0, symbol="α")
    information_on: Literal["mixed", "clean"] = setting(
        "mixed", "batch of the mutual-information loss; 'clean' costs a second pass of the student, also at weight 0"
    )
    gate: tuple[float, float] = setting(
        (0.0, 0.0), "learn only images whose teacher confidence exceeds this; from first to last epoch",
        low=0, high=1, symbol="κ",
    )  # fmt: skip
    teacher_statistics: Literal["batch", "global"] = setting(
        "batch", "BatchNorm statistics with which the teacher labels"
    )

    def setup(self, student: Network, loader: TargetImages) -> None:
        """The teacher labels, unless a composition says otherwise."""
        super().setup(student, loader)
        self.objective: Objective = TeacherLabels(self.temperature, self.consistency, self.gate)

    def begin_epoch(self, progress: Progress) -> None:
        """Set what changes from epoch to epoch."""
        super().begin_epoch(progress)
        self.objective.begin_epoch(progress)

    def step(self, batch: Batch) -> Losses:
        """Label, mix, infer (lines 6 to 8 of Algorithm 1)."""
        with torch.no_grad():
            target = self.objective.label(batch, self._look(batch))
        mixing = draw_mixing(len(batch), self.mixup_beta, self.fold, self.progress.rng, batch.images.device)
        output = self.student(mixing.images(batch.images))
        terms = self.objective.losses(output, target.mixed(*mixing))
        judged = output
        if self.information_on == "clean":
            # Also where the term has no weight, as in the authors' code: BatchNorm then sees clean images too.
            with torch.set_grad_enabled(self.information > 0):
                judged = self.student(batch.images)
        if self.information:
            terms["information"] = self.information * losses.negative_information(judged.logits)
        return terms

    def _look(self, batch: Batch) -> Output:
        teacher = self.pair.teacher
        if self.teacher_statistics == "global":
            return teacher(batch.images)
        with batch_statistics(teacher):
            return teacher(batch.images)
