"""`interpolate` with a share that is found without labels: the largest that undoes little of what was learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cosda.carry.base import CarryRule, Predict, State, blend
from cosda.settings import setting
from cosda.validators.information import INFORMATION

if TYPE_CHECKING:
    from torch import Tensor

SHARES = tuple(tenths / 10 for tenths in range(10))  # of the incoming model, among which it chooses
UNDO = 0.2


@dataclass(frozen=True)
class Auto(CarryRule):
    """Of the target's images whose class adaptation changed, a fifth as many may change it again."""

    title: ClassVar[str] = "interpolate with the largest share that undoes little of what was learnt"
    averages: ClassVar[bool] = True
    needs_images: ClassVar[bool] = True

    undo: float = setting(UNDO, "part of what adaptation changed that may be undone", low=0, high=1)

    @property
    def label(self) -> str:
        """Only what is unusual is said."""
        return "" if self.undo == UNDO else super().label

    def hand_on(
        self, incoming: State, adapted: State, along: State | None, predict: Predict
    ) -> tuple[State, dict[str, Any]]:
        """The mean with the chosen share; what each share would have done is recorded."""
        tried = _try(incoming, adapted, predict)
        share = choose_share(tried, self.undo)
        return blend(adapted, incoming, share), {"tried": tried, "share": share}


def _try(incoming: State, adapted: State, predict: Predict) -> list[dict[str, float]]:
    """What the target's images say to each share: how confident and diverse, and similar to which model."""
    said = [predict(blend(adapted, incoming, share)) for share in SHARES]  # the first is the adapted model alone
    after, before = said[0].argmax(dim=1), predict(incoming).argmax(dim=1)
    return [
        {
            "share": share,
            "adapted": _agreement(p.argmax(dim=1), after),
            "incoming": _agreement(p.argmax(dim=1), before),
            "information": float(INFORMATION.score(p, before)),
        }
        for share, p in zip(SHARES, said, strict=True)
    ]


def _agreement(classes: Tensor, others: Tensor) -> float:
    return float((classes == others).double().mean())


def choose_share(tried: Sequence[Mapping[str, float]], undo: float) -> float:
    """The largest share of the incoming model that undoes at most the part ``undo`` of what adaptation changed.

    The first entry is the adapted model itself. So 1 - its agreement with the incoming one is the part of the images
    whose class was changed, and 1 - an entry's agreement with the adapted one is what the share changes again.
    """
    allowed = undo * (1 - tried[0]["incoming"]) + 1e-9
    return max(one["share"] for one in tried if 1 - one["adapted"] <= allowed)
