"""NRC's neighbours in a bank of 150,000 pictures against its two bare matrix products with top-k."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.timing import interleaved
from cosda.parts.bank import Bank

PICTURES, WIDTH, BATCH, NEAR, EXTENDED = 150_000, 256, 64, 5, 5


def measure() -> dict[str, float]:
    """Seconds of our search through those of the bare products, which take 192 MB for the second one."""
    rng = torch.Generator().manual_seed(0)
    features = F.normalize(torch.randn(PICTURES, WIDTH, generator=rng))
    scores = torch.zeros(PICTURES, 1)
    banks = {"float32": Bank(features, scores), "half": Bank(features.half(), scores)}
    index = torch.randperm(PICTURES, generator=rng)[:BATCH]

    def bare() -> Tensor:
        near = (features[index] @ features.T).topk(NEAR + 1, dim=1).indices[:, 1:].flatten()
        return (features[near] @ features.T).topk(EXTENDED + 1, dim=1).indices[:, 1:]

    def ours(bank: Bank) -> Tensor:
        return bank.neighbours(bank.neighbours(index, NEAR), EXTENDED)

    candidates = {name: lambda bank=bank: ours(bank) for name, bank in banks.items()}  # type: ignore[misc]
    seconds = interleaved({"bare": bare, **candidates}, 5)
    return {f"neighbours, {name} bank": seconds[name] / seconds["bare"] for name in banks}
