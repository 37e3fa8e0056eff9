"""Losses: pure functions of tensors, each a few lines with its formula. Probabilities are p, soft labels q."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-5  # inside logarithms of batch means, as in SHOT and the methods that follow it


def label_smoothing(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy with target (1 - ε)·onehot + ε/C, batch mean."""
    return F.cross_entropy(logits, labels, label_smoothing=smoothing)


def consistency(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Σ_i w_i·(-Σ_c q_ic log p_ic) / Σ_i w_i: the gradient of the paper's KL(q ‖ p).

    0, with a gradient of 0, where no picture has a weight: the weights are 0 or 1, so a sum below 1 is 0.
    """
    per_picture = -(labels * F.log_softmax(logits, dim=1)).sum(dim=1)
    return (weights * per_picture).sum() / weights.sum().clamp(min=1)


def negative_information(logits: Tensor) -> Tensor:
    """-(1/B) Σ_i KL(p_i ‖ p̄) = mean entropy - entropy of the mean.

    Minimising it makes each prediction sure and their mean even, that is, maximises mutual information. The
    paper prints the opposite sign, which would collapse all predictions onto their mean.
    """
    log_p = F.log_softmax(logits, dim=1)
    p = log_p.exp()
    return -(p * (log_p - torch.log(p.mean(dim=0) + EPSILON))).sum(dim=1).mean()
