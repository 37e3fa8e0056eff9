"""Passes in which nothing is learnt (measuring, labels, banks) against a plain evaluation loop on tensors in memory.

Each way has processes of its own, so the plain loop has the memory allocation that any torch program has, and ours that
which `cosda` sets up. The last line of each network has both with memory kept.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.alone import alone
from benchmarks.facts import Fact
from benchmarks.straightforward import fill_bank
from benchmarks.timing import Timing, seconds
from cosda.data.loader import Loader
from cosda.models.architecture import Architecture
from cosda.models.network import Network, to_device
from cosda.parts.bank import Bank
from cosda.parts.prototypes import see_all
from cosda.preprocessing import Preprocessing
from cosda.run.evaluate import outputs
from cosda.run.memory import keep_freed_memory
from cosda.run.prepare import EVALUATION_BATCH

CPU = torch.device("cpu")
BASELINES = {"measuring": "plain loop", "labels": "plain loop", "bank": "plain bank"}


def measure(quick: bool = False) -> list[Fact]:
    """How many times faster our passes are, which cut and normalise their images besides."""
    if quick:
        return _compare("small ResNet, 32 px", "small", 32, 32, 1)
    return [
        *_compare("ResNet-18, 128 px", "resnet18", 128, 2 * EVALUATION_BATCH, 5),
        *_compare("lite0, 128 px", "lite0", 128, 2 * EVALUATION_BATCH, 5),
    ]


def _compare(case: str, encoder: str, side: int, count: int, rounds: int) -> list[Fact]:
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        for kept in (True, False):
            for name, value in alone(passes, encoder, side, count, kept).items():
                taken.setdefault(name, []).append(value)
    timing = Timing(taken)
    facts = [
        Fact.of(f"{name}, {case}", timing.ratio(theirs, name), least=1.5, seconds=timing.medians)
        for name, theirs in BASELINES.items()
    ]
    alike = timing.ratio("plain loop, memory kept", "measuring")
    return [*facts, Fact.of(f"measuring, {case}, memory kept for the plain loop too", alike)]


def passes(encoder: str, side: int, count: int, kept: bool) -> dict[str, float]:
    """Seconds of each way in this process: ours and a plain loop with memory kept, or the plain loops as they come."""
    torch.manual_seed(0)
    plain = Architecture(encoder, 256, 31).build()  # in torch's own memory order
    items = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    loader = Loader(items, np.arange(count), Preprocessing(size=side), CPU, EVALUATION_BATCH)
    ready = [batch.images.contiguous() for batch in loader.sweep("test")]
    candidates: dict[str, Callable[[], object]]
    if kept:
        keep_freed_memory()
        ours = to_device(copy.deepcopy(plain), CPU)
        _same(ours, plain, loader, ready)
        candidates = {
            "measuring": lambda: [o.logits.argmax(1) for _, o in outputs(ours, loader)],
            "labels": lambda: see_all(ours, loader),
            "bank": lambda: Bank.build(ours, loader),
            "plain loop, memory kept": lambda: plain_loop(plain, ready),
        }
    else:
        candidates = {"plain loop": lambda: plain_loop(plain, ready), "plain bank": lambda: fill_bank(plain, ready)}
    return {name: seconds(candidate) for name, candidate in candidates.items()}


def plain_loop(network: nn.Module, batches: list[Tensor]) -> list[Tensor]:
    """Evaluation as it is usually written."""
    network.eval()
    with torch.no_grad():
        return [network(images).logits.argmax(1) for images in batches]


def _same(ours: Network, plain: nn.Module, loader: Loader, ready: list[Tensor]) -> None:
    """Both must see the same, or the comparison would mean nothing."""
    seen = torch.cat([output.logits for _, output in outputs(ours, loader)])
    with torch.no_grad():
        wanted = torch.cat([plain.eval()(images).logits for images in ready])
    if not torch.allclose(seen, wanted, rtol=1e-2, atol=1e-3 * float(wanted.abs().max())):
        raise SystemExit("the two ways of evaluating disagree")
