"""Every random number comes from a stream that is named by what it is for.

A stream depends on the seed and its keys alone, for example ``stream(seed, stage, epoch, "order")``. Nothing is
drawn from a state that a run carries along, so a run that goes on after a crash draws what it would have drawn.
"""

from __future__ import annotations

import hashlib

import torch


def derive(seed: int, *keys: int | str) -> int:
    """A seed of 63 bits for one purpose."""
    text = "/".join(map(str, (seed, *keys)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def stream(seed: int, *keys: int | str) -> torch.Generator:
    """A generator for one purpose."""
    return torch.Generator().manual_seed(derive(seed, *keys))
