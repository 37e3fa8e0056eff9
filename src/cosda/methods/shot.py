"""SHOT: Do We Really Need to Access the Source Data? Source Hypothesis Transfer for Unsupervised Domain Adaptation.
Liang, Hu, Feng, 2020, https://arxiv.org/abs/2002.08546

The classifier stays as it was trained; encoder and bottleneck learn to give it features on which it is confident and
whose classes are diverse. Once an epoch every image is labelled by the nearest of the target's own class centroids, and
these labels are learnt too. Between epochs it keeps nothing but the student: labels are made anew at each epoch's
beginning.

Where we depart from the code of CoSDA's authors: it stores labels in the order of a shuffled loader and looks them up
by index, so that they are random; here they belong to the image. It labels training views (`variant="authors"`), the
original test views.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor
from torch.nn import functional as F

from cosda import losses
from cosda.methods.base import Group, Method, Progress, trained
from cosda.parts.prototypes import label_images
from cosda.settings import setting
from cosda.types import Batch, Losses, Output


@dataclass
class SHOT(Method):
    """Information maximisation and centroid labels under a frozen classifier."""

    title: ClassVar[str] = "frozen classifier, confident and diverse predictions, centroid labels"
    variants: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "authors": {"label_view": "weak"}}
    preset: ClassVar[dict[str, dict[str, Any]]] = {"adapt": {"lr": 1e-2, "lr_end": 2e-3}}  # CoSDA's Appendix B

    encoder_rate: float = setting(0.1, "learning rate of the encoder relative to the bottleneck's", low=0, high=1)
    label_weight: float = setting(0.3, "weight of the cross-entropy with the centroid labels", low=0, symbol="β")
    information: float = setting(1.0, "weight of the information-maximisation loss", low=0)
    first_epoch_labels: bool = setting(True, "learn centroid labels in the first epoch too")
    threshold: int = setting(0, "a class is a label if more than so many images are predicted to be of it", low=0)
    label_view: Literal["test", "weak"] = setting("test", "view of the images that are labelled")

    def parameters(self) -> list[Group]:
        """Encoder and bottleneck; the classifier is the source's hypothesis."""
        return trained(self.student, {"encoder": self.encoder_rate, "classifier": 0})

    def begin_epoch(self, progress: Progress) -> None:
        """Label all images, where the labels are learnt."""
        super().begin_epoch(progress)
        self.student.classifier.eval()
        self.labels: Tensor | None = None  # (N,) by the image's index
        if self.label_weight and (self.first_epoch_labels or progress.epoch > 0):
            self.labels = label_images(self.student, self.loader, self.threshold, view=self.label_view)

    def step(self, batch: Batch) -> Losses:
        """L = β·CE(z, ŷ) + mean entropy of p - entropy of the mean."""
        return self._terms(batch, self.student(batch.images))

    def before_update(self) -> None:
        """A classifier without a gradient stays, bit for bit; nor does one pile up over the steps."""
        self.student.classifier.zero_grad(set_to_none=True)

    def _terms(self, batch: Batch, output: Output) -> Losses:
        terms = {}
        if self.labels is not None:
            terms["labels"] = self.label_weight * F.cross_entropy(output.logits, self.labels[batch.index])
        if self.information:
            terms["information"] = self.information * losses.information_maximisation(output.logits)
        return terms
