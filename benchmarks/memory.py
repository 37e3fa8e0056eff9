"""Forward passes with freed memory kept against the C library's defaults, each in processes of its own."""

from __future__ import annotations

from functools import partial

import torch

from benchmarks.alone import in_turn
from benchmarks.facts import Fact
from benchmarks.timing import seconds
from cosda.models.encoders import build_encoder
from cosda.models.network import to_device
from cosda.run.memory import keep_freed_memory


def measure(quick: bool = False) -> list[Fact]:
    """How many times faster passes are with memory kept."""
    case, encoder, side, batch = (
        ("small ResNet, 32 px", "small", 32, 8) if quick else ("ResNet-18, 224 px", "resnet18", 224, 64)
    )
    ways = {name: partial(passes, kept, encoder, side, batch) for name, kept in (("kept", True), ("default", False))}
    timing = in_turn(ways, 1 if quick else 4)
    name = f"inference with memory kept, {case}, batch {batch}"
    return [Fact.of(name, timing.ratio("default", "kept"), seconds=timing.medians)]


def passes(kept: bool, encoder: str, side: int, batch: int) -> float:
    """Seconds of a forward pass."""
    if kept:
        keep_freed_memory()
    network = to_device(build_encoder(encoder), torch.device("cpu")).eval()
    images = torch.randn(batch, 3, side, side).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        return seconds(lambda: network(images), 3)
