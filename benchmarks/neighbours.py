"""NRC's neighbours in a large bank against its two bare matrix products with top-k, and against expanding the bank."""

from __future__ import annotations

import sys

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.alone import alone
from benchmarks.facts import Fact
from benchmarks.straightforward import expanded_neighbours
from benchmarks.timing import interleaved
from cosda.parts.bank import BLOCK_BYTES, Bank
from cosda.run.memory import linux_bytes

WIDTH, BATCH, NEAR, EXTENDED = 256, 64, 5, 5
IMAGES = 150_000
EXPANDED = 10_000  # expanding a bank of 150,000 for 64 images would take 9 GiB


def measure(quick: bool = False) -> list[Fact]:
    """Seconds of our search through those of the baselines, and what it takes beside the bank."""
    images, few, rounds = (2_000, 500, 2) if quick else (IMAGES, EXPANDED, 8)
    facts = [*_against_products(images, rounds), _against_expanding(few, rounds)]
    return [*facts, *_memory(images)]


def ours(bank: Bank, index: Tensor) -> Tensor:
    """Neighbours of neighbours (B, K, M)."""
    return bank.neighbours(bank.neighbours(index, NEAR), EXTENDED)


def _bank(images: int) -> tuple[Tensor, Tensor]:
    """Unit features, and the images of a batch. Filled bit by bit: the peak of memory is to be that of the search."""
    rng, features = torch.Generator().manual_seed(0), torch.empty(images, WIDTH)
    for start in range(0, images, 1_000):
        part = features[start : start + 1_000]
        part.copy_(F.normalize(torch.randn(part.shape, generator=rng)))
    return features, torch.randperm(images, generator=rng)[:BATCH]


def _against_products(images: int, rounds: int) -> list[Fact]:
    features, index = _bank(images)
    scores = torch.zeros(images, 1)
    banks = {"float32": Bank(features, scores), "half": Bank(features.half(), scores)}

    def bare() -> Tensor:
        near = (features[index] @ features.T).topk(NEAR + 1, dim=1).indices[:, 1:].flatten()
        return (features[near] @ features.T).topk(EXTENDED + 1, dim=1).indices[:, 1:]

    candidates = {name: lambda bank=bank: ours(bank, index) for name, bank in banks.items()}
    timing = interleaved({"bare": bare, **candidates}, rounds)
    return [
        Fact.of(
            f"neighbours, N = {images:,}, {name} bank",
            timing.ratio(name, "bare"),
            most=1.3 if name == "float32" else None,  # a half bank is for its memory
            seconds=timing.medians,
        )
        for name in banks
    ]


def _against_expanding(images: int, rounds: int) -> Fact:
    features, index = _bank(images)
    bank = Bank(features, torch.zeros(images, 1))
    candidates = {
        "ours": lambda: ours(bank, index),
        "expanding": lambda: expanded_neighbours(features, index, NEAR, EXTENDED),
    }
    if not torch.equal(candidates["ours"](), candidates["expanding"]()):
        raise SystemExit("the two searches disagree")
    timing = interleaved(candidates, rounds)
    name = f"times faster than expanding the bank, N = {images:,}"
    return Fact.of(name, timing.ratio("expanding", "ours"), seconds=timing.medians)


def _memory(images: int) -> list[Fact]:
    if sys.platform != "linux":
        return []
    block = BLOCK_BYTES / 2**20
    return [Fact("memory beside the bank", alone(added_memory, images) / 2**20, "MiB", most=block)]


def added_memory(images: int) -> int:
    """The most that a search in a new process takes beyond the bank."""
    features, index = _bank(images)
    bank = Bank(features, torch.zeros(images, 1))
    ours(Bank(features[:BATCH].clone(), torch.zeros(BATCH, 1)), torch.arange(BATCH))  # torch's own workspaces
    before = linux_bytes("VmHWM")
    ours(bank, index)
    return linux_bytes("VmHWM") - before
