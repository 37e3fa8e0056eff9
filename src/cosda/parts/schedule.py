"""Numbers that change in training."""

from __future__ import annotations

import math


def cosine(start: float, end: float, epoch: int, epochs: int) -> float:
    """From ``start`` at epoch 0 along half a cosine to ``end``, which would be reached at epoch ``epochs``."""
    return end - (end - start) * (1 + math.cos(math.pi * min(1.0, epoch / epochs))) / 2
