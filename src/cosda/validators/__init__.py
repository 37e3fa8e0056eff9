"""Label-free scores of a model, from its predictions on the target's training images; the larger, the better.

Every epoch is scored by all of them, and ``--select NAME`` lets one choose the epoch. One score, one file, and one line
here. Torch is imported by the scores themselves and not with this folder: help texts and the report need names alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosda.registry import Registry
from cosda.validators.agreement import AGREEMENT
from cosda.validators.base import Validator
from cosda.validators.entropy import ENTROPY
from cosda.validators.information import INFORMATION
from cosda.validators.nuclear_norm import NUCLEAR_NORM
from cosda.validators.snd import SND

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["VALIDATORS", "Validator", "scores"]

VALIDATORS: Registry[Validator] = Registry(
    "validator",
    {
        "information": INFORMATION,
        "snd": SND,
        "nuclear_norm": NUCLEAR_NORM,
        "entropy": ENTROPY,
        "agreement": AGREEMENT,
    },
    group="cosda.validators",
    of=Validator,
)


def scores(p: Tensor, before: Tensor) -> dict[str, float]:
    """All scores of predictions (N, C), given the classes (N,) that the stage's first model gave."""
    return {name: float(validator.score(p, before)) for name, validator in VALIDATORS.items()}
