"""A CoSDA step through the runner against the same forward and backward passes in plain torch on tensors in memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.alone import alone
from benchmarks.facts import Fact
from benchmarks.straightforward import bare_step
from benchmarks.timing import interleaved
from cosda.config.schema import AdaptSettings
from cosda.data.loader import Loader
from cosda.methods.base import Progress
from cosda.methods.cosda import CoSDA
from cosda.models.architecture import Architecture
from cosda.models.network import Network, to_device
from cosda.models.precision import Arithmetic
from cosda.preprocessing import FEATURE_VECTORS, Preprocessing
from cosda.randomness import stream
from cosda.run.memory import keep_freed_memory, linux_bytes
from cosda.run.prepare import MARGIN
from cosda.run.train import Training

CPU = torch.device("cpu")
FEATURES = 1280


@dataclass(frozen=True)
class Case:
    """A network and the batches it gets."""

    name: str
    encoder: str
    side: int  # 0 for feature vectors
    batch: int
    rounds: int
    most: float | None = None

    def network(self) -> Network:
        """A new one; every call gives the same weights."""
        torch.manual_seed(0)
        width = None if self.side else FEATURES
        return to_device(Architecture(self.encoder, 256, 31, width).build(), CPU)

    def loader(self) -> Loader:
        """Made-up samples, two batches of them."""
        stored, rng = round(self.side * MARGIN), np.random.default_rng(0)
        if self.side:
            items = rng.integers(0, 256, (2 * self.batch, stored, stored, 3), dtype=np.uint8)
            return Loader(items, np.arange(len(items)), Preprocessing(size=self.side), CPU, self.batch)
        vectors = rng.normal(size=(2 * self.batch, FEATURES)).astype(np.float32)
        return Loader(vectors, np.arange(len(vectors)), FEATURE_VECTORS, CPU, self.batch)


CASES = (
    Case("ResNet-18, 128 px, batch 32", "resnet18", 128, 32, 12, 1.05),
    Case("small ResNet, 32 px, batch 64", "small", 32, 64, 60, 1.05),
    Case("features, 1280 wide, batch 64", "identity", 0, 64, 300, 1.5),
)


def measure(quick: bool = False) -> list[Fact]:
    """Time of a step through that of the bare arithmetic, and the same for the memory that each adds to its process."""
    facts = []
    for case in CASES[1:] if quick else CASES:
        timing = interleaved({name: made(case) for name, made in STEPS.items()}, 3 if quick else case.rounds)
        facts.append(
            Fact.of(f"step, {case.name}", timing.ratio("ours", "bare"), most=case.most, seconds=timing.medians)
        )
    if sys.platform == "linux":  # elsewhere nothing tells how much a process has used at most
        facts += [_memory(case, 2 if quick else 4) for case in (CASES[1:2] if quick else CASES[:2])]
    return facts


def our_step(case: Case, how: Arithmetic = Network.arithmetic) -> Callable[[], object]:
    """A step of the product: CoSDA's and the runner's."""
    loader, network = case.loader(), case.network()
    network.arithmetic = how
    settings = AdaptSettings(epochs=1, batch_size=case.batch)
    training = Training(CoSDA(), network, loader, settings, 0, 1, "target")
    training.method.begin_epoch(Progress(1, 0, 1, stream(0)))
    batch = next(iter(loader.epoch(1, 0)))
    return lambda: training._update(training.method.step(batch))


def arithmetic(case: Case) -> Callable[[], object]:
    """The bare arithmetic on the same images."""
    images, step = next(iter(case.loader().epoch(1, 0))).images, bare_step(case.network())
    return lambda: step(images)


STEPS = {"ours": our_step, "bare": arithmetic}


def _memory(case: Case, steps: int) -> Fact:
    used = {name: alone(added_memory, name, case, steps) for name in STEPS}
    mebibytes = {name: value / 2**20 for name, value in used.items()}
    return Fact(f"memory of a step, {case.name}", used["ours"] / used["bare"], most=1.1, mebibytes=mebibytes)


def added_memory(name: str, case: Case, steps: int) -> int:
    """The most that a process holds in some steps, beyond what it holds once its libraries are loaded."""
    keep_freed_memory()
    _warm_up()
    before = linux_bytes("VmHWM")
    step = STEPS[name](case)
    for _ in range(steps):
        step()
    return linux_bytes("VmHWM") - before


def _warm_up() -> None:
    """Have torch start its threads and make its workspaces."""
    layer = torch.nn.Conv2d(3, 8, 3)
    layer(torch.zeros(2, 3, 8, 8)).sum().backward()
