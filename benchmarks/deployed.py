"""An exported model against the original, from the same pixels: one image at a time, and batches of 32.

The original is the network as `cosda predict` runs it, with BatchNorm folded. All compute with one thread: torch and
ONNX Runtime have threads of their own, which would take the cores from each other. What is compared is the time that
the processor worked. Ratios above 1 say that the exported
model is faster.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.alone import alone
from benchmarks.facts import Fact, number, place
from benchmarks.routing import CPU, make_bank
from benchmarks.timing import Timing, interleaved, threads
from cosda.data.views import make_view
from cosda.deploy import FORMATS
from cosda.deploy.graph import make_graph
from cosda.models.architecture import Architecture
from cosda.models.artifact import Model
from cosda.models.bn_folding import WORTH, evaluating
from cosda.models.network import Network, to_device
from cosda.preprocessing import Preprocessing
from cosda.run.memory import keep_freed_memory

SIZES = {"one image": 1, "32 images": 32}
CLASSES = 31


def measure(quick: bool = False) -> list[Fact]:
    """How many times as fast each format is."""
    small, lite = ("small ResNet, 32 px", "small", 32), ("lite0, 96 px", "lite0", 96)
    if quick:
        return _compare(*small, 1, 2, ("torchscript",))
    return [
        fact
        for case, rounds in ((small, 60), (lite, 20))
        for domains in (1, 3)
        for fact in _compare(*case, domains, rounds, tuple(FORMATS))
    ]


def table(folder: Path) -> str:
    """Latency of one image and throughput of batches, of the original and each format, as Markdown."""
    path = folder / "deployed.json"
    if not path.exists():
        return "Not measured: deployed."
    stored = json.loads(path.read_text(encoding="utf-8"))
    rows: dict[tuple[str, str], dict[str, Fact]] = {}
    for values in stored["facts"]:
        values.pop("met")
        format, _, rest = values["case"].partition(", ")
        network, _, count = rest.rpartition(", ")
        rows.setdefault((network, count), {})[format] = Fact(**values)
    formats = list(next(iter(rows.values())))
    lines = [
        f"| network | batch | original | {' | '.join(formats)} |",
        f"|---|---|--:|{'--:|' * len(formats)}",
    ]
    for (network, count), facts in rows.items():
        times = next(iter(facts.values())).seconds
        cells = [f"{_speed(times[name], SIZES[count])}<br>{facts[name].reached}" for name in formats]
        lines.append(f"| {network} | {count} | {_speed(times['original'], SIZES[count])} | {' | '.join(cells)} |")
    load = f"load average at the start: {stored['load']:.1f}"
    return "\n".join([*lines, "", f"Taken on {place(stored)}; {load}."])


def _speed(seconds: float, images: int) -> str:
    """The time of one image; of several, how many in a second."""
    return number(1000 * seconds, "ms") if images == 1 else f"{images / seconds:,.0f}/s"


def _compare(case: str, encoder: str, side: int, domains: int, rounds: int, formats: tuple[str, ...]) -> list[Fact]:
    found = alone(times, encoder, side, domains, rounds, formats)
    case = case if domains == 1 else f"{case}, bank of {domains} domains"
    return [
        Fact.of(f"{name}, {case}, {count}", timing.ratio("original", name), seconds=timing.medians)
        for count, timing in found.items()
        for name in formats
    ]


def times(encoder: str, side: int, domains: int, rounds: int, formats: tuple[str, ...]) -> dict[str, Timing]:
    """Seconds of a batch of each size, of the original and of each format, in this process."""
    keep_freed_memory()
    with threads(1):
        return _times(encoder, side, domains, rounds, formats)


def _times(encoder: str, side: int, domains: int, rounds: int, formats: tuple[str, ...]) -> dict[str, Timing]:
    network, items = _network(encoder, side, domains)
    preprocessing = Preprocessing(size=side)
    model = Model(network, Architecture(encoder, 256, CLASSES), tuple(map(str, range(CLASSES))), preprocessing)
    graph = make_graph(model, network)
    said = {"outputs": graph.outputs}
    files = {name: FORMATS[name].open(FORMATS[name].write(graph, said)) for name in formats}
    found = {}
    with evaluating(network) as fast:

        def original(batch: Tensor) -> Tensor:
            return fast(make_view("test", batch, preprocessing, torch.Generator())).logits.softmax(dim=1)

        for start in range(0, 2 * WORTH, len(items)):
            original(items[: 2 * WORTH - start])  # folded from now on
        for name, count in SIZES.items():
            batch = items[:count]
            candidates: dict[str, Callable[[], object]] = {"original": partial(original, batch)}
            candidates |= {each: partial(run, batch.numpy()) for each, run in files.items()}
            found[name] = interleaved(candidates, rounds, warm=5, clock=time.process_time)
    return found


def _network(encoder: str, side: int, domains: int) -> tuple[Network, Tensor]:
    """A network, and pixels of all its domains."""
    if domains == 1:
        torch.manual_seed(0)
        network = to_device(Architecture(encoder, 256, CLASSES).build("random"), CPU).eval()
        pixels = np.random.default_rng(0).integers(0, 256, (32, side, side, 3), dtype=np.uint8)
        return network, torch.from_numpy(pixels)
    bank, seen = make_bank(encoder, side, domains)
    mean, std = (torch.tensor(values)[:, None, None] for values in (Preprocessing.mean, Preprocessing.std))
    shown = ((seen * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)[:32]
    return bank, shown.permute(0, 2, 3, 1).contiguous()
