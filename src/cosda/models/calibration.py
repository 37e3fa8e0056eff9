"""How far the probabilities of a model can be believed, found once on labelled images of what it was trained on.

Two numbers are enough for the estimators of `cosda.judge`: the temperature at which the model's probabilities fit its
labels best (Guo et al., ICML 2017, https://arxiv.org/abs/1706.04599), and the threshold of ATC (Garg et al., ICLR 2022,
https://arxiv.org/abs/2201.04234), above which lie as many images as the model classifies correctly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from cosda.settings import Range, typed

TEMPERATURES = torch.logspace(-1, 1, 81, dtype=torch.float64)  # from a tenth to ten


@dataclass(frozen=True)
class Calibration:
    """What labelled images tell of a model's probabilities."""

    images: Annotated[int, Range(0)]
    accuracy: Annotated[float, Range(0, 1)]  # of the model on them
    temperature: Annotated[float, Range(1e-6, 1e6)]
    threshold: float  # of the negative entropy of the probabilities at that temperature
    held_out: bool  # whether the model was not trained on these images

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None, where: str = "a calibration") -> Calibration | None:
        """The reverse of `as_json`; None for None."""
        found: Calibration | None = typed(cls | None, values, where, "calibration")
        return found

    def probabilities(self, logarithms: Tensor) -> Tensor:
        """Probabilities (N, C) at the temperature, from logits or the logarithms of probabilities."""
        return (logarithms.double() / self.temperature).softmax(dim=1)


def calibrate(logits: Tensor, labels: Tensor, held_out: bool) -> Calibration:
    """The calibration of a model that gave logits (N, C) for images with these labels (N,)."""
    logits = logits.double()
    correct = float((logits.argmax(dim=1) == labels).double().mean())
    losses = torch.stack([-_own(logits / t, labels).mean() for t in TEMPERATURES])
    temperature = float(TEMPERATURES[int(losses.argmin())])
    confidence = certainty((logits / temperature).softmax(dim=1))
    threshold = float(confidence.quantile(1 - correct))
    return Calibration(len(labels), correct, temperature, threshold, held_out)


def _own(logits: Tensor, labels: Tensor) -> Tensor:
    """The logarithm of the probability of each image's own class."""
    return logits.log_softmax(dim=1).gather(1, labels[:, None])[:, 0]


def certainty(probabilities: Tensor) -> Tensor:
    """The negative entropy (N,) of probabilities (N, C); 0 is certain."""
    entropy: Tensor = torch.special.entr(probabilities).sum(dim=1)
    return -entropy
