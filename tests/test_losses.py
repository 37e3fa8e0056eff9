"""Each loss against a slow loop written from its formula, and against cases that need no computer."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from cosda.losses import EPSILON, consistency, label_smoothing, negative_information


def random_logits(seed=0, size=(7, 4), scale=2.0):
    return scale * torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def softmax_of(row):
    powers = [math.exp(v) for v in row]
    return [p / sum(powers) for p in powers]


def entropy(p):
    return -(p * p.clamp(min=1e-30).log()).sum(-1)


def instance_and_marginal_entropy(logits):
    p = F.softmax(logits, dim=1)
    return float(entropy(p).mean()), float(entropy(p.mean(0)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_label_smoothing_is_the_formula(smoothing):
    logits, labels = random_logits(), torch.tensor([0, 1, 2, 3, 0, 0, 2])
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        for c, p in enumerate(softmax_of(row)):
            total -= ((1 - smoothing) * (c == label) + smoothing / 4) * math.log(p)
    assert float(label_smoothing(logits, labels, smoothing)) == pytest.approx(total / 7)


def test_consistency_is_the_weighted_mean_of_cross_entropies():
    logits, labels = random_logits(1), F.softmax(random_logits(2), dim=1)
    weights = torch.tensor([1, 0, 1, 1, 0, 0, 1], dtype=torch.float64)
    above = below = 0.0
    for row, label, weight in zip(logits.tolist(), labels.tolist(), weights.tolist(), strict=True):
        above += weight * -sum(q * math.log(p) for q, p in zip(label, softmax_of(row), strict=True))
        below += weight
    assert float(consistency(logits, labels, weights)) == pytest.approx(above / below)


def test_a_image_without_weight_gets_no_gradient_and_one_image_counts_fully():
    logits = random_logits(1).requires_grad_()
    labels, weights = F.softmax(random_logits(2), dim=1), torch.zeros(7, dtype=torch.float64)
    weights[3] = 1
    loss = consistency(logits, labels, weights)
    loss.backward()
    alone = -(labels[3] * F.log_softmax(logits[3], dim=0)).sum()
    assert float(loss.detach()) == pytest.approx(float(alone.detach()))
    assert not logits.grad[weights == 0].any()
    torch.testing.assert_close(logits.grad[3], F.softmax(logits[3].detach(), dim=0) - labels[3])


def test_an_empty_mask_costs_nothing_and_has_gradients_of_zero():
    logits = random_logits().requires_grad_()
    loss = consistency(logits, F.softmax(random_logits(1), dim=1), torch.zeros(7, dtype=torch.float64))
    loss.backward()
    assert float(loss.detach()) == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_consistency_is_the_divergence_up_to_the_entropy_of_the_labels():
    logits, labels = random_logits(3), F.softmax(random_logits(4), dim=1)
    divergence = F.kl_div(F.log_softmax(logits, dim=1), labels, reduction="batchmean")
    got = consistency(logits, labels, torch.ones(7, dtype=torch.float64))
    torch.testing.assert_close(got, divergence + entropy(labels).mean())


def test_negative_information_is_the_formula():
    logits = random_logits(5)
    rows = [softmax_of(row) for row in logits.tolist()]
    mean = [sum(column) / 7 for column in zip(*rows, strict=True)]
    total = 0.0
    for row in rows:
        total -= sum(p * (math.log(p) - math.log(m + EPSILON)) for p, m in zip(row, mean, strict=True))
    assert float(negative_information(logits)) == pytest.approx(total / 7, rel=1e-12)
    assert EPSILON == 1e-5


def test_identical_rows_carry_no_information():
    logits = random_logits(6, (1, 4), scale=0.5).expand(9, 4)
    assert float(negative_information(logits)) == pytest.approx(0, abs=5 * EPSILON)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_sure_and_even_predictions_carry_log_c(classes):
    logits = 1000 * torch.eye(classes, dtype=torch.float64).repeat(3, 1)
    assert float(negative_information(logits)) == pytest.approx(-math.log(classes), abs=2 * classes * EPSILON)


@pytest.mark.parametrize("seed", range(5))
def test_a_step_down_makes_each_prediction_surer_and_their_mean_more_even(seed):
    logits = random_logits(seed, (32, 5), scale=1.0) + torch.tensor([1.0, 0, 0, 0, -1.0])
    before = instance_and_marginal_entropy(logits)
    for _ in range(20):
        logits = logits.detach().requires_grad_()
        negative_information(logits).backward()
        logits = logits - 0.5 * logits.grad
    after = instance_and_marginal_entropy(logits.detach())
    assert after[0] < before[0]
    assert after[1] > before[1]


def test_the_gradient_also_flows_through_the_mean():
    logits = random_logits(8, (5, 3)).requires_grad_()
    assert torch.autograd.gradcheck(negative_information, (logits,), atol=1e-8, rtol=1e-6)
