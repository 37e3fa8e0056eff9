"""Who this process is among those that torchrun started, by its environment variables. No torch."""

from __future__ import annotations

import os
from typing import NamedTuple


class Place(NamedTuple):
    """A process of a job: its number among all, how many there are, and its number on its own machine."""

    rank: int
    world: int
    local: int


ALONE = Place(0, 1, 0)


def place() -> Place:
    """As torchrun says; a process that it did not start is alone, whatever variables are left from elsewhere."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ALONE
    return Place(*(int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")))
