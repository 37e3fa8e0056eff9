"""The nuclear norm of the matrix of predictions. Cui et al., CVPR 2020, https://arxiv.org/abs/2003.12237"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cosda.validators.base import Validator

if TYPE_CHECKING:
    from torch import Tensor


def score(p: Tensor, before: Tensor) -> Tensor:
    """‖P‖_* / √(N · min(N, C)): 1 where predictions are confident and spread evenly over the classes."""
    import torch

    count, classes = p.shape
    norm: Tensor = torch.linalg.matrix_norm(p, "nuc")
    return norm / math.sqrt(count * min(count, classes))


NUCLEAR_NORM = Validator("nuclear norm of the matrix of predictions, 1 at most: confident and diverse", score)
