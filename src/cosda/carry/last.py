"""Hand on the adapted model, as every method of the field does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from cosda.carry.base import CarryRule, Predict, State


@dataclass(frozen=True)
class Last(CarryRule):
    """The adapted model."""

    title: ClassVar[str] = "the adapted model"

    def hand_on(
        self, incoming: State, adapted: State, along: State | None, predict: Predict
    ) -> tuple[State, dict[str, Any]]:
        """The adapted model as it is."""
        return dict(adapted), {"share": 0.0}
