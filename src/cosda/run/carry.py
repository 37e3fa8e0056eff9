"""The carry rule: what a stage hands on need not be the adapted model. Dual speed at the scale of stages.

A method adapts as it always does; then the model handed on, which is the one that is measured too, is a mean of what
the stage began with and what it made, weights and BatchNorm statistics alike. It costs no training and no images of
earlier domains:

    last           the adapted model
    interpolate    w·incoming + (1 - w)·adapted: one straight line
    along          a mean over the way: after each epoch m·mean + (1 - m)·adapted, with m such that the share w of the
                   incoming model is left after the last one
    auto           interpolate, with the largest w that undoes little of what was learnt: of the target's images whose
                   class the adaptation changed, a fifth as many may change it again. No label is needed for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cosda.config.schema import AdaptSettings
from cosda.run.validators import information

# A model as a stage keeps it: {"network": tensors by name, "own": statistics, "merged": statistics}.
State = Mapping[str, Any]

SHARES = tuple(tenths / 10 for tenths in range(10))  # of the incoming model, among which `auto` chooses


@dataclass
class Carry:
    """The carry rule of one stage. It keeps the incoming model, and the mean along the way where that is asked for."""

    settings: AdaptSettings
    incoming: State

    def __post_init__(self) -> None:
        self.mean: State | None = self.incoming if self.settings.carry == "along" else None

    def follow(self, adapted: Callable[[], State]) -> None:
        """An epoch is over."""
        if self.mean is not None:
            stays: float = self.settings.carry_share ** (1 / self.settings.epochs)
            self.mean = blend(adapted(), self.mean, stays)

    def hand_on(self, adapted: State, predict: Callable[[State], Tensor]) -> tuple[State, dict[str, Any]]:
        """The model to hand on, and what is recorded of the choice."""
        rule, share = self.settings.carry, 0.0
        if self.mean is not None:
            return self.mean, {"rule": rule, "share": self.settings.carry_share}
        facts: dict[str, Any] = {"rule": rule}
        if rule == "interpolate":
            share = self.settings.carry_share
        elif rule == "auto":
            facts["tried"] = self._try(adapted, predict)
            share = choose_share(facts["tried"], self.settings.carry_undo)
        return blend(adapted, self.incoming, share), {**facts, "share": share}

    def _try(self, adapted: State, predict: Callable[[State], Tensor]) -> list[dict[str, float]]:
        """What the target's images say to each share: how confident and diverse, and like which model."""
        said = [predict(blend(adapted, self.incoming, share)) for share in SHARES]  # the first: the adapted model alone
        after, before = said[0].argmax(dim=1), predict(self.incoming).argmax(dim=1)
        return [
            {
                "share": share,
                "adapted": _agreement(p.argmax(dim=1), after),
                "incoming": _agreement(p.argmax(dim=1), before),
                "information": float(information(p)),
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


def blend(adapted: State, incoming: State, share: float) -> dict[str, Any]:
    """``share``·incoming + (1 - ``share``)·adapted; what is no number with a point (counters) is the adapted one's."""
    if not share:
        return dict(adapted)
    network = {key: _mean(value, incoming["network"][key], share) for key, value in adapted["network"].items()}
    lists = {
        kind: [_mean(*pair, share) for pair in zip(adapted[kind], incoming[kind], strict=True)]
        for kind in adapted
        if kind != "network"
    }
    return {"network": network, **lists}


def _mean(adapted: Tensor, incoming: Tensor, share: float) -> Tensor:
    return torch.lerp(adapted, incoming, share) if adapted.is_floating_point() else adapted
