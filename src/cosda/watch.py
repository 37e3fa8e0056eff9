"""What a run tells while it works. The command line shows it; a program may listen; by default nobody does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Watcher:
    """Receives what happens; every method does nothing unless overridden."""

    def note(self, text: str) -> None:
        """Something a person should know."""

    def skipped(self, domain: str, images: Sequence[tuple[str, str]]) -> None:
        """Images of a domain, by name and reason, that could not be read and are left out."""

    def ignored(self, domain: str, files: str) -> None:
        """Files of a domain that are no images, such as ``3 .heic``, and were left out."""

    def job(self, title: str, images: int, hint: str = "") -> None:
        """The whole training begins: so many images over all epochs; ``hint`` says how to be done sooner."""

    def begin(self, task: str, steps: int, unit: str = "steps") -> None:
        """A task of so many steps begins, such as an epoch."""

    def advance(self, steps: int = 1, images: int = 0, values: Mapping[str, float] | None = None) -> None:
        """Some steps are done; ``images`` were trained on, ``values`` are the latest loss terms."""

    def end(self, **facts: Any) -> None:
        """The task is done; ``facts`` are worth a line."""

    def measured(self, stage: int, epoch: int | None, domain: str, accuracy: float) -> None:
        """A model was measured on a domain by the benchmark's headline accuracy.

        ``epoch`` is None for the model that the stage hands on.
        """
