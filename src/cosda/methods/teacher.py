"""What CoSDA and CoTTA share as methods: a slow teacher whose labels the student learns.

The pair of networks and its averaging are `parts/dual_speed.py`; here are its settings and its place in the contract of
a method. The teacher takes in the student, weights and BatchNorm statistics, once an epoch or at every step; it is the
model that is measured and handed to the next domain, and what a resume needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from cosda.methods.base import Method, TargetImages, module_state
from cosda.models.network import Network
from cosda.parts.dual_speed import DualSpeed
from cosda.settings import setting


@dataclass
class TeacherMethod(Method):
    """A method whose labels come from a slow teacher."""

    native_statistics: ClassVar[Literal["own", "merged"]] = "merged"

    meeting: Literal["epoch", "step"] = setting("epoch", "when the teacher takes in the student")
    momentum: tuple[float, float] = setting(
        (0.9, 0.99), "share of the teacher's weights that stays at a meeting", low=0, high=1, symbol="m"
    )
    statistics_momentum: tuple[float, float] | None = setting(
        None, "the same for BatchNorm statistics; 'none' takes that of the weights", low=0, high=1
    )
    statistics_merge: Literal["linear", "mixture"] = setting(
        "linear", "average variances, or take the variance of the mixture of both domains"
    )
    restart: bool = setting(False, "the student restarts from the teacher after each epoch")

    def setup(self, student: Network, loader: TargetImages) -> None:
        """Teacher and student start from the model carried so far."""
        super().setup(student, loader)
        self.pair = DualSpeed(student)

    def after_update(self) -> None:
        """Without dual speed the two meet at every step."""
        if self.meeting == "step":
            self._meet()

    def end_epoch(self) -> None:
        """With it they meet once an epoch (lines 11 to 13 of CoSDA's Algorithm 1)."""
        if self.meeting == "epoch":
            self._meet()
        if self.restart:
            self.pair.restart()

    def predictor(self, domain: str | None = None) -> Network:
        """The teacher, with the merged statistics; no domain name is needed."""
        return self.pair.teacher

    def state_dict(self) -> dict[str, Any]:
        """The teacher."""
        return {"teacher": module_state(self.pair.teacher)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The teacher."""
        self.pair.teacher.load_state_dict(state["teacher"])

    def _meet(self) -> None:
        momentum = self.progress.between(*self.momentum)
        statistics = self.progress.between(*(self.statistics_momentum or self.momentum))
        self.pair.meet(momentum, statistics, mixture=self.statistics_merge == "mixture")
