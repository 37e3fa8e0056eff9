"""A mean over the way: after each epoch the mean takes in a little of the model of that epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from cosda.carry.base import CarryRule, Predict, State, blend
from cosda.settings import setting


@dataclass(frozen=True)
class Along(CarryRule):
    """After each epoch m·mean + (1 - m)·adapted, with m such that the share w of the incoming model is left."""

    title: ClassVar[str] = "a mean over all epochs, in which the incoming model has this share, such as along=0.5"
    averages: ClassVar[bool] = True
    chooses_epoch: ClassVar[bool] = False  # all epochs are in the mean

    share: float = setting(0.5, "share of the incoming model after the last epoch", low=0, high=1, symbol="w")

    def begin(self, incoming: State) -> State:
        """The mean begins with the incoming model."""
        return incoming

    def follow(self, along: State, adapted: State, epochs: int) -> State:
        """m = w^(1/epochs)."""
        stays: float = self.share ** (1 / epochs)
        return blend(adapted, along, stays)

    def hand_on(
        self, incoming: State, adapted: State, along: State | None, predict: Predict
    ) -> tuple[State, dict[str, Any]]:
        """The mean over all epochs."""
        assert along is not None
        return along, {"share": self.share}
