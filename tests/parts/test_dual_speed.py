"""The merge of weights and statistics by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cosda.models.network import same_weights, weights
from cosda.models.statistics import batch_norms, set_statistics, statistics
from cosda.parts.dual_speed import DualSpeed, MergedStatistics
from tiny import tiny_network


def images(seed=0, count=6):
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


def disturb(network, seed=1):
    """Other weights, other statistics, another count of batches."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in [*network.parameters(), *statistics(network)]:
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.1)
        for norm in batch_norms(network):
            norm.num_batches_tracked.fill_(77)


def disturbed_pair(kind="batch_norm"):
    pair = DualSpeed(tiny_network(kind))
    disturb(pair.student)
    return pair


def copies(tensors):
    return [t.clone() for t in tensors]


def assert_same(got, wanted):
    assert len(got) == len(wanted)
    assert all(torch.equal(g, w) for g, w in zip(got, wanted, strict=True))


def test_teacher_starts_equal_and_apart_without_gradients_in_eval_mode():
    student = tiny_network().train()
    pair = DualSpeed(student)
    assert pair.student is student
    assert same_weights(pair.teacher, student)
    assert not {t.data_ptr() for t in weights(pair.teacher)} & {t.data_ptr() for t in weights(student)}
    assert not any(p.requires_grad for p in pair.teacher.parameters())
    assert all(p.requires_grad for p in student.parameters())
    assert student.training
    assert not any(m.training for m in pair.teacher.modules())


@pytest.mark.parametrize("kind", ["batch_norm", "plain"])
def test_a_meeting_averages_weights_and_statistics_each_with_its_momentum(kind):
    pair = disturbed_pair(kind)
    slow, fast = copies(weights(pair.teacher)), copies(weights(pair.student))
    slow_statistics, fast_statistics = copies(statistics(pair.teacher)), copies(statistics(pair.student))
    pair.meet(0.9, 0.7)
    for got, s, f in zip(weights(pair.teacher), slow, fast, strict=True):
        torch.testing.assert_close(got, 0.9 * s + 0.1 * f)
    for got, s, f in zip(statistics(pair.teacher), slow_statistics, fast_statistics, strict=True):
        torch.testing.assert_close(got, 0.7 * s + 0.3 * f)
    assert len(slow_statistics) == (4 if kind == "batch_norm" else 0)
    assert_same(weights(pair.student), fast)
    assert_same(statistics(pair.student), fast_statistics)


def test_one_number_by_hand():
    pair = DualSpeed(tiny_network())
    norms = [next(batch_norms(network)) for network in (pair.teacher, pair.student)]
    for norm, (mean, variance) in zip(norms, [(2.0, 1.0), (6.0, 5.0)], strict=True):
        norm.running_mean.fill_(mean)
        norm.running_var.fill_(variance)
    pair.meet(1.0, 0.75, mixture=True)
    assert norms[0].running_mean.tolist() == pytest.approx([3.0] * 8)
    assert norms[0].running_var.tolist() == pytest.approx([0.75 + 1.25 + 0.75 * 0.25 * 16] * 8)


@pytest.mark.parametrize("mixture", [False, True])
def test_momentum_1_keeps_the_teacher_and_0_takes_the_student_to_the_last_bit(mixture):
    pair = disturbed_pair()
    tensors = weights(pair.teacher) + statistics(pair.teacher)
    before = copies(tensors)
    pair.meet(1.0, 1.0, mixture)
    assert_same(tensors, before)
    pair.meet(0.0, 0.0, mixture)
    assert_same(tensors, weights(pair.student) + statistics(pair.student))


def test_the_mixture_has_the_variance_of_both_samples_together():
    pair = DualSpeed(nn.BatchNorm1d(3))
    first, second = torch.randn(300, 3, dtype=torch.float64), 2 + 3 * torch.randn(100, 3, dtype=torch.float64)
    for norm, sample in ((pair.teacher, first), (pair.student, second)):
        norm.double()
        norm.running_mean.copy_(sample.mean(0))
        norm.running_var.copy_(sample.var(0, correction=0))
    pair.meet(0.5, 0.75, mixture=True)
    together = torch.cat([first, second])
    torch.testing.assert_close(pair.teacher.running_mean, together.mean(0))
    torch.testing.assert_close(pair.teacher.running_var, together.var(0, correction=0))


def test_counters_are_not_averaged():
    pair = disturbed_pair()
    pair.meet(0.5, 0.5)
    assert {int(norm.num_batches_tracked) for norm in batch_norms(pair.teacher)} == {0}
    assert {int(norm.num_batches_tracked) for norm in batch_norms(pair.student)} == {77}


def test_a_restart_copies_weights_and_keeps_the_students_statistics():
    pair = disturbed_pair()
    own, teacher = copies(statistics(pair.student)), copies(weights(pair.teacher))
    pair.restart()
    assert_same(weights(pair.student), teacher)
    assert_same(statistics(pair.student), own)
    assert all(p.requires_grad for p in pair.student.parameters())
    with torch.no_grad():
        next(pair.student.parameters()).add_(1)
    assert_same(weights(pair.teacher), teacher)  # copied, not shared


def test_merged_statistics_follow_slowly_and_leave_the_student_alone():
    """m = 0.75: from 2 towards 6 it is 3, then 3.75; the student stays at 6."""
    student = tiny_network()
    set_statistics(student, [torch.full_like(value, 2.0) for value in statistics(student)])
    merged = MergedStatistics(student)
    set_statistics(student, [torch.full_like(value, 6.0) for value in statistics(student)])
    for wanted in (3.0, 3.75):
        merged.follow(student, 0.75)
        assert {round(number, 5) for value in merged.values for number in value.tolist()} == {wanted}
        assert {number for value in statistics(student) for number in value.tolist()} == {6.0}
    merged.follow(student, 1.0)
    assert merged.values[0][0].item() == pytest.approx(3.75)
