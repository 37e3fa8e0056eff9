"""An image and the class that each of two models gives to it. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cosda.settings import Range

Share = Annotated[float, Range(0, 1 + 1e-6)]  # sums of 32-bit numbers end a little above 1


@dataclass(frozen=True)
class ComparedImage:
    """An image, and what two models say of it."""

    image: str  # its name, or its number where it has none
    before: str  # the class that the first model gives
    before_probability: Share
    after: str  # that of the second
    after_probability: Share
