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

    0, with a gradient of 0, where no image has a weight: the weights are 0 or 1, so a sum below 1 is 0.
    """
    per_image = -(labels * F.log_softmax(logits, dim=1)).sum(dim=1)
    return (weights * per_image).sum() / weights.sum().clamp(min=1)


def negative_information(logits: Tensor) -> Tensor:
    """-(1/B) Σ_i KL(p_i ‖ p̄) = mean entropy - entropy of the mean.

    Minimising it makes each prediction confident and their mean diverse, that is, maximises mutual information. The
    paper prints the opposite sign, which would collapse all predictions onto their mean.
    """
    log_p = F.log_softmax(logits, dim=1)
    p = log_p.exp()
    return -(p * (log_p - torch.log(p.mean(dim=0) + EPSILON))).sum(dim=1).mean()


DAC_EPSILON = 1e-6  # in DaC's quotients and logarithms


def adaptive_contrast(similarity: Tensor, local: Tensor, groups: Tensor, own: Tensor, extra: int) -> Tensor:
    """-mean_i log π_i,own(i) with π_ia = exp D_ia / Σ_a' exp D_ia': each image near its own group in the memory.

    D_ia = (Σ_{j: groups_j = a} o_ij + [own_i = a]·s_i) / n_a with similarity o (B, N) and local score s (B,). n_a
    counts the rows of group a, and ``extra`` more where an image of the batch belongs to it. Groups are numbered
    from 0 and none is empty.
    """
    counts = torch.bincount(groups)
    counts = counts + torch.zeros_like(counts).index_fill(0, own, extra)
    sums = similarity.new_zeros(len(similarity), len(counts)).index_add(1, groups, similarity)
    sums = sums.scatter_add(1, own[:, None], local[:, None])
    powers = (sums / counts).exp()
    chosen = powers.gather(1, own[:, None]).squeeze(1) / (powers.sum(dim=1) + DAC_EPSILON)
    return -(chosen + DAC_EPSILON).log().mean()


def classwise_mmd(similarity: Tensor, labels: Tensor, source_like: Tensor, index: Tensor, classes: int) -> Tensor:
    """-mean_i log ρ_i,other: each image near the rows of its class in the part of the memory that is not its own.

    ρ_i = softmax(A^s_i, A^t_i), where A^s_i is the mean of o_ij over source-like rows j with the label of i and A^t_i
    over target-specific ones, 0 where there is none. Similarity o is (B, N); labels and ``source_like`` (N,) are of all
    rows, ``index`` (B,) says which are the batch's.
    """
    part = 2 * labels + (~source_like).long()  # two groups of rows for each class
    counts = torch.bincount(part, minlength=2 * classes).clamp(min=1)
    means = similarity.new_zeros(len(similarity), 2 * classes).index_add(1, part, similarity) / counts
    pair = means.view(-1, classes, 2)[torch.arange(len(index), device=index.device), labels[index]].exp()
    other = pair.gather(1, source_like[index].long()[:, None]).squeeze(1)
    return -(other / (pair.sum(dim=1) + DAC_EPSILON) + DAC_EPSILON).log().mean()


def information_maximisation(logits: Tensor) -> Tensor:
    """SHOT's -(1/B) Σ_i Σ_c p_ic log(p_ic + ε) + Σ_c p̄_c log(p̄_c + ε): `negative_information` with ε in both."""
    p = F.softmax(logits, dim=1)
    mean = p.mean(dim=0)
    return -(p * torch.log(p + EPSILON)).sum(dim=1).mean() + (mean * torch.log(mean + EPSILON)).sum()


def local_structure(p: Tensor, scores: Tensor) -> Tensor:
    """-mean_i Σ_j log⟨p_i, S_ij⟩: predictions p (B, C) agree with those of their neighbours S (B, k, C)."""
    return -torch.log(torch.einsum("bc,bkc->bk", p, scores) + 1e-8).sum(dim=1).mean()


def negative_diversity(p: Tensor) -> Tensor:
    """Σ_c p̄_c log p̄_c: the smaller, the more evenly the batch is spread over the classes."""
    mean = p.mean(dim=0)
    return (mean * torch.log(mean + EPSILON)).sum()


def attraction(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """-(1/B) Σ_i Σ_l w_il ⟨q_il, p_i⟩ for labels (B, L, C) and weights (B, L): the dot product of NRC and AaD.

    Their code calls `kl_div(p, q)` where log p is meant, which differs from this by a constant only.
    """
    return -(weights * torch.einsum("blc,bc->bl", labels, F.softmax(logits, dim=1))).sum(dim=1).mean()


def dispersion(logits: Tensor) -> Tensor:
    """(1/B) Σ_i Σ_{j≠i} ⟨p_i, p_j⟩, with gradient through both factors."""
    p = F.softmax(logits, dim=1)
    return (p.sum(dim=0).square().sum() - p.square().sum()) / len(p)
