"""What a carry rule is, and how two models are averaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from cosda.models.network import Network
    from cosda.models.profile import DomainProfile
    from cosda.models.router import Gauge

FAR = 0.5  # share of the target's images beyond the known domain's limit from which averaging is doubtful

# A model as a stage keeps it: {"network": tensors by name, "own": statistics, "merged": statistics}.
State = Mapping[str, Any]
Predict = Callable[[State], "Tensor"]  # class probabilities (N, C) of the target's images, by a model


class Target(Protocol):
    """The target domain of a stage, as a rule may look at it."""

    @property
    def name(self) -> str:
        """The domain's."""
        ...

    @property
    def frozen(self) -> bool:
        """Whether the encoder is frozen, so that networks are heads."""
        ...

    def __len__(self) -> int:
        """How many training images it has."""
        ...

    def statistics(self, gauge: Gauge) -> Tensor:
        """Routing statistics (N, D) of its training images."""
        ...

    def profile(
        self,
        gauge: Gauge,
        network: Network,
        others: tuple[DomainProfile, ...] = (),
        stranger: Network | None = None,
    ) -> DomainProfile:
        """Its profile beside those of other domains, with what a network says of it; an error for too few images.

        A ``stranger`` is a network that was not trained on these images.
        """
        ...

    def image(self) -> Tensor:
        """One of them (1, …), any."""
        ...

    def note(self, text: str) -> None:
        """Tell the user something."""
        ...


@dataclass(frozen=True)
class CarryRule:
    """What a stage hands on, given the model it began with and the adapted one.

    A rule is a dataclass with at most one setting: ``interpolate=0.5`` on the command line is ``Interpolate(0.5)``. It
    keeps nothing itself; what it carries from epoch to epoch lies in checkpoints.
    """

    title: ClassVar[str] = ""
    needs_images: ClassVar[bool] = False  # whether it judges by the target's images (adapt.validate)
    chooses_epoch: ClassVar[bool] = True  # whether the selection rule says which epoch is the adapted model
    averages: ClassVar[bool] = False  # whether one set of weights is to serve old and new domains
    enlarges: ClassVar[bool] = False  # whether a network grows with each stage

    @property
    def value(self) -> float | None:
        """The rule's one setting, if it has any."""
        return next((getattr(self, field.name) for field in fields(self)), None)

    @property
    def label(self) -> str:
        """What the name of a row says of the rule, after its name; empty where it has no setting."""
        return "" if self.value is None else f"{self.value:g}"

    def check(self, given: Network | None, target: str, images: int) -> None:
        """An error, before any training, for a target of which the rule can make nothing.

        ``given`` is the model that the run begins with; None where it will be trained first.
        """

    def student(self, known: Network, target: Target, begin: str) -> tuple[Network, dict[str, Any]]:
        """The network that a stage trains, and facts for the record: most rules train what the stage before handed on.

        ``begin`` is the setting of that name.
        """
        self._warn(known, target)
        return known, {}

    def _warn(self, known: Network, target: Target) -> None:
        """Say before training where one set of weights for both domains is likely to fail."""
        from cosda.models.router import Gauge, Router

        gauge = Gauge(known.encoder, target.frozen)
        if self.averages and known.profile is not None and known.profile.late == gauge.late:
            far = float(Router((known.profile,)).unknown(target.statistics(gauge)).double().mean())
            if far > FAR:
                target.note(
                    f"{100 * far:.0f} % of the images are unlike those of {known.profile.name}, which the model knows. "
                    "The mean of two models may then be worse than both; --carry bank keeps them apart."
                )

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

    def keep(self, whole: Network, student: Network, target: Target) -> Network:
        """The whole network that is handed on, once the student has what `hand_on` made: most rules changed it."""
        from cosda.models.profile import FEWEST
        from cosda.models.router import Gauge

        # The profile that it had is of a network that is gone. How far its probabilities could be believed is still the
        # best guess of that.
        gauge, had = Gauge(student.encoder, target.frozen), whole.profile
        made = target.profile(gauge, student) if len(target) >= FEWEST else None
        whole.profile = replace(made, calibration=had.calibration) if made and had else made
        return whole


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
