"""What a carry rule is, and how two models are averaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from torch import Tensor

# A model as a stage keeps it: {"network": tensors by name, "own": statistics, "merged": statistics}.
State = Mapping[str, Any]
Predict = Callable[[State], "Tensor"]  # class probabilities (N, C) of the target's images, by a model


@dataclass(frozen=True)
class CarryRule:
    """What a stage hands on, given the model it began with and the adapted one.

    A rule is a dataclass with at most one setting: ``interpolate=0.5`` on the command line is ``Interpolate(0.5)``. It
    keeps nothing itself; what it carries from epoch to epoch lies in checkpoints.
    """

    title: ClassVar[str] = ""
    needs_images: ClassVar[bool] = False  # whether it judges by the target's images (adapt.validate)
    chooses_epoch: ClassVar[bool] = True  # whether the selection rule says which epoch is the adapted model

    @property
    def value(self) -> float | None:
        """The rule's one setting, if it has any."""
        return next((float(getattr(self, field.name)) for field in fields(self)), None)

    @property
    def label(self) -> str:
        """What the name of a row says of the rule, after its name; empty where it has no setting."""
        return "" if self.value is None else f"{self.value:g}"

    def begin(self, incoming: State) -> State | None:
        """What is carried along from epoch to epoch; most rules need nothing."""
        return None

    def follow(self, along: State, adapted: State, epochs: int) -> State:
        """What is carried along after one more epoch of ``epochs``."""
        return along

    def hand_on(
        self, incoming: State, adapted: State, along: State | None, predict: Predict
    ) -> tuple[State, dict[str, Any]]:
        """The model to hand on, and facts for the record: at least the share of the incoming model."""
        raise NotImplementedError(f"{type(self).__name__} has no hand_on")


def blend(adapted: State, incoming: State, share: float) -> dict[str, Any]:
    """``share``·incoming + (1 - ``share``)·adapted; tensors of whole numbers (counters) are the adapted one's."""
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
    return adapted.lerp(incoming, share) if adapted.is_floating_point() else adapted
