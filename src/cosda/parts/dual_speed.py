"""A slow teacher beside a fast student: the teacher takes in the student, weights and BatchNorm statistics.

This is the pair of networks; the methods that work with one (CoSDA, CoTTA) share `methods/teacher.py`.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from cosda.models.network import Network, freeze, weights
from cosda.models.statistics import statistics


class DualSpeed:
    """Teacher and student start equal; the student is trained, the teacher only ever averages."""

    def __init__(self, student: Network) -> None:
        self.student = student
        self.teacher: Network = copy.deepcopy(student)
        freeze(self.teacher).eval()

    def meet(self, momentum: float, statistics_momentum: float, mixture: bool = False) -> None:
        """θ ← m·θ + (1 - m)·ψ, and the same for the statistics with their own momentum.

        Averaging variances alone ignores that the two means differ; ``mixture`` adds β(1 - β)(μ̄ - μ)², which
        makes the result the variance of the mixture of both domains.
        """
        slow, fast = statistics(self.teacher), statistics(self.student)
        apart = [s - f for s, f in zip(slow[::2], fast[::2], strict=True)] if mixture else []
        _average(weights(self.teacher), weights(self.student), momentum)
        _average(slow, fast, statistics_momentum)
        if apart:
            between = statistics_momentum * (1 - statistics_momentum)
            torch._foreach_addcmul_(slow[1::2], apart, apart, between)

    def restart(self) -> None:
        """The student goes on from the teacher's weights; it keeps its own BatchNorm statistics."""
        torch._foreach_copy_(weights(self.student), weights(self.teacher))


class MergedStatistics:
    """BatchNorm statistics that follow a student's slowly, whatever its method does with the weights.

    They show how much of a method's forgetting is in its statistics: a model whose statistics are the last target's
    alone sees every earlier domain through them.
    """

    def __init__(self, student: nn.Module) -> None:
        self.values = [value.clone() for value in statistics(student)]

    def follow(self, student: nn.Module, momentum: float) -> None:
        """(μ̄, σ̄²) ← m·(μ̄, σ̄²) + (1 - m)·(μ, σ²)."""
        _average(self.values, statistics(student), momentum)


def _average(slow: list[Tensor], fast: list[Tensor], momentum: float) -> None:
    if slow:  # a network without BatchNorm has no statistics
        get_ema_multi_avg_fn(momentum)(slow, fast, 0)  # type: ignore[no-untyped-call]
