"""Source only: no adaptation at all. The baseline that says what a method gains, and the forgetting of 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from cosda.methods.base import Group, Method
from cosda.types import Batch, Losses


@dataclass
class Source(Method):
    """Keeps the model as it is."""

    title: ClassVar[str] = "source model, not adapted"
    variants: ClassVar[dict[str, dict[str, Any]]] = {}
    fixed_epochs: ClassVar[int | None] = 0

    def parameters(self) -> list[Group]:
        """Nothing is trained."""
        return []

    def step(self, batch: Batch) -> Losses:
        """Nothing to learn from any image."""
        return {}
