"""What a run tells while it works. The command line shows it; a program may listen; by default nobody does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Watcher:
    """Receives what happens; every method does nothing unless overridden."""

    def note(self, text: str) -> None:
        """Something a person should know."""

    def begin(self, task: str, steps: int, unit: str = "steps") -> None:
        """A task of so many steps begins."""

    def advance(self, steps: int = 1, images: int = 0, values: Mapping[str, float] | None = None) -> None:
        """Some steps are done; ``values`` are the latest loss terms."""

    def end(self, **facts: Any) -> None:
        """The task is done; ``facts`` are worth a line."""

    def measured(self, stage: int, epoch: int | None, domain: str, accuracy: float) -> None:
        """A model has this headline accuracy on a domain; ``epoch`` is None for the final model of the stage."""
