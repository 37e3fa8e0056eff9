"""Forward passes with freed memory kept against the C library's defaults, each in processes of its own."""

from __future__ import annotations

import time

import torch

from benchmarks.alone import alone
from benchmarks.facts import Fact
from benchmarks.timing import Timing
from cosda.models.encoders import build_encoder
from cosda.models.network import place
from cosda.run.memory import keep_freed_memory


def measure(quick: bool = False) -> list[Fact]:
    """How many times faster passes are with memory kept."""
    case, encoder, side, batch = (
        ("small ResNet, 32 px", "small", 32, 8) if quick else ("ResNet-18, 224 px", "resnet18", 224, 64)
    )
    seconds: dict[str, list[float]] = {"kept": [], "default": []}
    for _ in range(1 if quick else 4):
        for name, values in seconds.items():
            values.append(alone(passes, name == "kept", encoder, side, batch))
    timing = Timing(seconds)
    name = f"inference with memory kept, {case}, batch {batch}"
    return [Fact.of(name, timing.ratio("default", "kept"), seconds=timing.medians)]


def passes(kept: bool, encoder: str, side: int, batch: int) -> float:
    """Seconds of three forward passes."""
    if kept:
        keep_freed_memory()
    network = place(build_encoder(encoder), torch.device("cpu")).eval()
    images = torch.randn(batch, 3, side, side).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        network(images)
        start = time.perf_counter()
        for _ in range(3):
            network(images)
    return time.perf_counter() - start
