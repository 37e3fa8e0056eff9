"""The arithmetic alone of both ways of `adaptation`: their steps and passes, on tensors in memory.

It says how near to its limit an adaptation is on this processor: no packing, reading, views or files are in it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.adaptation import Case
from benchmarks.alone import in_turn
from benchmarks.facts import Fact
from benchmarks.straightforward import accuracy, bare_step, two_pass_step
from benchmarks.timing import seconds
from cosda.models.architecture import Architecture
from cosda.models.bn_folding import evaluating
from cosda.models.network import to_device
from cosda.run.memory import keep_freed_memory
from cosda.run.prepare import EVALUATION_BATCH

WEBCAM = 795  # images


def measure(quick: bool = False) -> list[Fact]:
    """The two ways in turn, each in processes of its own, as in `adaptation`."""
    case, sample, rounds = (Case("small", 32, 1, 8, 16), 1, 1) if quick else (Case(), 4, 8)
    ways = {"ours": partial(our_arithmetic, case, sample), "straightforward": partial(their_arithmetic, case, sample)}
    timing = in_turn(ways, rounds)
    name = f"steps and passes alone of `adaptation`, {case.encoder}, {case.side} px, {case.epochs} epochs"
    return [Fact.of(name, timing.ratio("ours", "straightforward"), seconds=timing.medians)]


def our_arithmetic(case: Case, sample: int) -> float:
    """Seconds of bare steps, and of passes with folded BatchNorm: before, after each epoch, with other statistics."""
    keep_freed_memory()  # as every run does
    torch.manual_seed(0)
    network = to_device(Architecture(case.encoder, 256, 31).build(), torch.device("cpu"))
    step = bare_step(network)
    images = torch.randn(EVALUATION_BATCH, 3, case.side, case.side).to(memory_format=torch.channels_last)

    def look() -> None:
        with evaluating(network) as fast:
            fast(images)

    return _of_all(case, sample, lambda: step(images[: case.batch]), look, looks=case.epochs + 2)


def their_arithmetic(case: Case, sample: int) -> float:
    """Seconds of steps with two passes of the student, and of plain evaluation, which is done once more."""
    torch.manual_seed(0)
    network = Architecture(case.encoder, 256, 31).build()
    step = two_pass_step(copy.deepcopy(network).train(), copy.deepcopy(network).train())
    images = torch.randn(EVALUATION_BATCH, 3, case.side, case.side)
    batches = [(images, torch.zeros(len(images)))]
    return _of_all(
        case, sample, lambda: step(images[: case.batch]), lambda: accuracy(network, batches), looks=case.epochs + 3
    )


def _of_all(case: Case, sample: int, step: Callable[[], object], look: Callable[[], object], looks: int) -> float:
    """What all steps and all looks at the images would take, from so many of each."""
    images = case.images or WEBCAM
    steps = case.epochs * math.ceil(images / case.batch)
    return steps * seconds(step, sample) + looks * images / EVALUATION_BATCH * seconds(look, sample)
