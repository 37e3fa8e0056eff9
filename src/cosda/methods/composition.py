"""CoSDA with another method's labels: Feng et al., 2023, https://arxiv.org/abs/2304.06627, "CoSDA+NRC", "CoSDA+AaD".

The paper says that a bank of neighbours refines the teacher's inference before the student learns it, and no more.
`variant="paper"` does that: the teacher fills a bank at each epoch's start, an image's label is the mean of its
neighbours' predictions, sharpened as CoSDA sharpens the teacher's, and mixing, consistency and mutual information are
CoSDA's; of AaD the dispersion stays (NRC's diversity is half of the mutual information already).
`variant="authors"` is their code: the student fills the bank and refreshes it with each clean batch, the other method's
losses are paid on the mixed batch, there is no gate and no mutual information, and the teacher acts only by the
meetings and by restarting the student. Averaged bank rows are not brought back to length 1 there. Between epochs both
keep the teacher, and a bank where it is persistent.

Where we depart from that code: an image is kept from being its own neighbour by its index and not by taking the first
hit away, which among rows of different length need not be the image.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast, get_type_hints

from cosda.methods.base import Objective, Progress, TargetImages
from cosda.methods.cosda import SLOW_STATISTICS, CoSDA
from cosda.methods.neighbours import NeighbourMethod
from cosda.models.network import Network
from cosda.settings import setting, settings_of
from cosda.types import Batch, Losses, Output, Target


@dataclass
class RefinedLabels:
    """CoSDA's own objective, with the neighbours' mean in the place of the teacher's prediction."""

    own: Objective
    base: NeighbourMethod

    def begin_epoch(self, progress: Progress) -> None:
        """Both."""
        self.own.begin_epoch(progress)
        self.base.begin_epoch(progress)

    def label(self, batch: Batch, seen: Output) -> Target:
        """r = Σ_l w_l label_l / Σ_l w_l, then q = softmax(log r / τ)."""
        found = self.base.label(batch, seen)
        refined = (found.weights[:, :, None] * found.labels).sum(dim=1)
        refined = refined / found.weights.sum(dim=1, keepdim=True).clamp(min=1e-12)
        return self.own.label(batch, Output(seen.features, refined.clamp(min=1e-12).log()))

    def losses(self, output: Output, target: Target) -> Losses:
        """CoSDA's consistency, and the dispersion where the other method has one."""
        return {**self.own.losses(output, target), **self.base.spread(output)}


@dataclass
class Composition(CoSDA):
    """CoSDA whose objective is that of another method; `compose` adds that method's settings."""

    base_class: ClassVar[type[NeighbourMethod]]

    looks: Literal["teacher", "student"] = setting("teacher", "whose output on clean images fills the bank")
    learn_by: Literal["consistency", "attraction"] = setting(
        "consistency", "learn the neighbours' labels as CoSDA learns the teacher's, or by the other method's losses"
    )

    def setup(self, student: Network, loader: TargetImages) -> None:
        """Teacher, student, and the other method around the one of them that fills the bank."""
        super().setup(student, loader)
        self.base = self.base_class(**{key: getattr(self, key) for key in settings_of(self.base_class)})
        self.base.setup(student if self.looks == "student" else self.pair.teacher, loader)
        self.objective = RefinedLabels(self.objective, self.base) if self.learn_by == "consistency" else self.base

    def begin_epoch(self, progress: Progress) -> None:
        """Fill the bank."""
        super().begin_epoch(progress)
        self.pair.teacher.eval()  # a method that begins an epoch puts its network into training mode

    def state_dict(self) -> dict[str, Any]:
        """The teacher, and a bank that persists."""
        return {**super().state_dict(), "base": self.base.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The teacher and the bank."""
        super().load_state_dict(state)
        self.base.load_state_dict(state["base"])

    def _look(self, batch: Batch) -> Output:
        if self.bank_is_static:  # nobody needs to look at an image whose row stays
            assert self.base.memory is not None
            return self.base.memory.recall(batch.index)
        return self.student(batch.images) if self.looks == "student" else super()._look(batch)

    @property
    def bank_is_static(self) -> bool:
        """Whether the bank stays as it is within an epoch."""
        return self.base.bank == "epoch-static"


# The authors' code beyond what it does in plain CoSDA.
AUTHORS: dict[str, Any] = {
    "looks": "student",
    "learn_by": "attraction",
    "bank": "epoch",
    "bank_keep": 0.8,
    "bank_unit": False,
    "mixup_beta": 0.1,
    "fold": True,
    "information": 0.0,
    "momentum": (0.8, 0.95),
    "statistics_momentum": SLOW_STATISTICS,
    "restart": True,
}


def compose(base: type[NeighbourMethod]) -> type[Composition]:
    """The CoSDA version of a method: CoSDA's settings, and those of the method that CoSDA does not have."""
    ours, hints = settings_of(Composition), get_type_hints(base)
    fields = []
    for item in dataclasses.fields(base):
        if item.name not in ours:
            default = "epoch-static" if item.name == "bank" else item.default  # the teacher stays within an epoch
            fields.append((item.name, hints[item.name], dataclasses.field(default=default, metadata=item.metadata)))
    namespace = {
        "__doc__": f"CoSDA that learns {base.__name__}'s labels.",
        "title": f"CoSDA whose labels are refined by {base.__name__}'s neighbours",
        "variants": {"paper": {}, "authors": {**AUTHORS, **base.with_cosda}},
        "base_class": base,
    }
    made = dataclasses.make_dataclass(f"CoSDA{base.__name__}", fields, bases=(Composition,), namespace=namespace)
    return cast(type[Composition], made)
