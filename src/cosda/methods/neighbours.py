"""What NRC and AaD share: a bank of the target's features and predictions, and a step that learns from neighbours.

Each is a method of its own and an objective that CoSDA can take (see composition.py): `label` looks neighbours up in
the bank, `losses` are those of the student. The bank is filled by an eval-mode pass over the training images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from cosda.methods.base import Method, Progress, TargetImages
from cosda.models.network import Network
from cosda.parts.bank import Bank
from cosda.settings import setting
from cosda.types import Batch, Losses, Output, Target


@dataclass
class NeighbourMethod(Method):
    """A method whose labels are the predictions of near images."""

    with_cosda: ClassVar[dict[str, Any]] = {}  # what the authors' code of its composition with CoSDA sets

    neighbours: int = setting(4, "nearest images whose predictions an image learns", low=1, symbol="K")
    neighbours_later: int | None = setting(None, "the same after half of the epochs; 'none' keeps it", low=1)
    bank: Literal["epoch", "persistent", "epoch-static"] = setting(
        "epoch", "filled at each epoch's start, or once for a target; 'static' rows stay as they are within the epoch"
    )
    bank_keep: float = setting(0.0, "share of a bank row that stays when its image is seen again", low=0, high=1)
    bank_unit: bool = setting(True, "bring features of the bank back to length 1 after averaging")
    bank_precision: Literal["float32", "half"] = setting("float32", "numbers of the bank; 'half' halves its memory")
    search: Literal["torch", "faiss", "auto"] = setting(
        "torch", "what finds neighbours; 'auto' takes faiss for large banks if it is installed"
    )
    search_megabytes: int = setting(64, "memory that a search by torch may take beside the bank", low=1)

    def setup(self, student: Network, loader: TargetImages) -> None:
        """A new target has no bank yet."""
        super().setup(student, loader)
        self.memory: Bank | None = None

    def begin_epoch(self, progress: Progress) -> None:
        """Fill the bank, unless one persists from epoch to epoch."""
        super().begin_epoch(progress)
        if self.memory is None or self.bank != "persistent":
            dtype = torch.half if self.bank_precision == "half" else torch.float32
            self.memory = Bank.build(self.student, self.loader, dtype=dtype)
        self.memory.backend, self.memory.block_bytes = self.search, self.search_megabytes * 2**20

    def step(self, batch: Batch) -> Losses:
        """One pass of the student: its output refreshes the bank and is drawn to that of its neighbours."""
        output = self.student(batch.images)
        return self.losses(output, self.label(batch, Output(output.features.detach(), output.logits.detach())))

    def label(self, batch: Batch, seen: Output) -> Target:
        """The neighbours' predictions; no gradient."""
        raise NotImplementedError(f"{type(self).__name__} has no label")

    def losses(self, output: Output, target: Target) -> Losses:
        """The student's losses; with gradient."""
        raise NotImplementedError(f"{type(self).__name__} has no losses")

    def spread(self, output: Output) -> Losses:
        """The loss that keeps predictions apart, where CoSDA's own losses do not do so already."""
        return {}

    def remember(self, batch: Batch, seen: Output) -> Bank:
        """The bank, after it has taken in what was just seen."""
        assert self.memory is not None, "begin_epoch fills the bank"
        if self.bank != "epoch-static":
            self.memory.update(batch.index, seen, self.bank_keep, self.bank_unit)
        return self.memory

    def scheduled(self, first: int, later: int | None) -> int:
        """A number that may change after half of the epochs. The settings stay: each target begins with the first."""
        return first if later is None or self.progress.epoch <= self.progress.epochs / 2 else later

    def state_dict(self) -> dict[str, Any]:
        """The bank, if it must outlive the epoch."""
        return self.memory.state_dict() if self.memory is not None and self.bank == "persistent" else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The bank."""
        self.memory = Bank.from_state(state) if state else None
