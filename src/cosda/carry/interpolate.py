"""After each stage the models before and after adaptation are averaged: dual speed at the scale of stages.

It costs no training and no images of earlier domains. Weights and BatchNorm statistics are averaged alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from cosda.carry.base import CarryRule, Predict, State, blend
from cosda.settings import setting


@dataclass(frozen=True)
class Interpolate(CarryRule):
    """w·incoming + (1 - w)·adapted: a point on the straight line between both."""

    title: ClassVar[str] = "the mean of the incoming and the adapted model, such as interpolate=0.5"
    averages: ClassVar[bool] = True

    share: float = setting(0.5, "share of the incoming model in what is handed on", low=0, high=1, symbol="w")

    def hand_on(
        self, incoming: State, adapted: State, along: State | None, predict: Predict
    ) -> tuple[State, dict[str, Any]]:
        """The mean."""
        return blend(adapted, incoming, self.share), {"share": self.share}
