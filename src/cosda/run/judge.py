"""Whoever looks over a stage's shoulder; `cosda.judge` has the one that gives a verdict on an adaptation.

A run of a benchmark has none: methods are compared as they are, also where they fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from cosda.records.folder import RunFolder

if TYPE_CHECKING:
    from cosda.run.prepare import Prepared


class Judge:
    """Sees a stage before, during and after its training; this one sees nothing."""

    stops = False  # whether a training that diverged ends the stage, and not the run

    def begin(self, prepared: Prepared, target: str) -> str | None:
        """A reason not to train on the target at all; None to go on."""
        return None

    def epoch(self, probabilities: Tensor) -> str | None:
        """A reason to stop after an epoch, given what the model says (N, C) of the judged images; None to go on."""
        return None

    def end(self, prepared: Prepared, folder: RunFolder, stopped: str | None) -> None:
        """The stage is over: ``prepared`` has the model that it hands on, ``stopped`` says why training was stopped."""
