"""An image and the class that each of two models gives to it. No torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ComparedImage:
    """An image, and what two models say of it."""

    image: str  # its name, or its number where it has none
    before: str  # the class that the first model gives
    before_probability: float
    after: str  # that of the second
    after_probability: float
