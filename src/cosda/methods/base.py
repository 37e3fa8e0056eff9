"""The contract of a method. A method is a dataclass whose fields are its settings; `step` is all it must have.

The runner (`run/train.py`) adds the terms that `step` returns, does backward and the optimiser's step, and records
the mean of each term, so no method contains a loop or a `backward()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from cosda import losses
from cosda.models.network import PARTS, Network
from cosda.parts.schedule import cosine
from cosda.preprocessing import Preprocessing
from cosda.settings import setting, settings_of
from cosda.types import Batch, Losses, Output, Target


class Group(NamedTuple):
    """Parameters that are trained with ``rate`` times the learning rate."""

    name: str
    parameters: list[nn.Parameter]
    rate: float


@dataclass(frozen=True)
class Progress:
    """Where in the training of one target domain we are, and the random stream of this epoch."""

    stage: int
    epoch: int
    epochs: int
    rng: torch.Generator

    def between(self, start: float, end: float) -> float:
        """This epoch's value of a number that goes from ``start`` to ``end`` along a cosine."""
        return cosine(start, end, self.epoch, self.epochs)


class TargetImages(Protocol):
    """The unlabelled training images of a target domain, as a method may ask for them between epochs."""

    @property
    def preprocessing(self) -> Preprocessing:
        """How the images became the network's input, for methods that change images and not tensors."""
        ...

    def __len__(self) -> int: ...

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        ...

    def sweep(self, view: str = "test") -> Iterator[Batch]:
        """All images once, in order of their index."""
        ...


class Objective(Protocol):
    """The one seam: how labels are made from what a network says, and the losses with which the student learns them.

    CoSDA takes an objective. Its own is the teacher's prediction; a method that offers one (as NRC and AaD do) gets its
    CoSDA version for nothing.
    """

    def begin_epoch(self, progress: Progress) -> None:
        """Set what changes from epoch to epoch; rebuild the bank."""
        ...

    def label(self, batch: Batch, seen: Output) -> Target:
        """Labels for a batch; no gradient."""
        ...

    def losses(self, output: Output, target: Target) -> Losses:
        """The student's losses; with gradient."""
        ...


@dataclass
class Method:
    """Adapts a student to one target domain after another."""

    title: ClassVar[str] = ""
    views: ClassVar[tuple[str, ...]] = ("weak",)  # the images it wants; the first is `batch.images`
    # Named sets of settings, the first is the default: what the paper says, and what its authors' code does. A
    # benchmark's preset may add to each.
    variants: ClassVar[dict[str, dict[str, Any]]] = {"paper": {}, "authors": {}}
    # Whose BatchNorm statistics the predictor has: the student's own, or ones merged over domains.
    native_statistics: ClassVar[Literal["own", "merged"]] = "own"
    fixed_epochs: ClassVar[int | None] = None  # for methods whose number of epochs is not a choice
    preset: ClassVar[
        dict[str, dict[str, Any]]
    ] = {}  # section -> key -> value: what the method is without any benchmark

    # Settings that decide how the source model is made, besides those of `source`; a method that names any has source
    # models of its own. All others share theirs.
    source_settings: ClassVar[tuple[str, ...]] = ()

    encoder_rate: float = setting(1.0, "learning rate of the encoder relative to the head's", low=0, high=1)

    def settings(self) -> dict[str, Any]:
        """The values of all settings by key."""
        return {key: getattr(self, key) for key in settings_of(type(self))}

    def source_network(self, network: Network, width: int, domains: Sequence[str]) -> Network:
        """The network with which source training begins; ``width`` is that of its features."""
        return network

    def adopt(self, network: Network, domains: Sequence[str], rng: torch.Generator) -> tuple[Network, str]:
        """A given model's network as this method needs it for new domains, and what a person should know of that."""
        grown = network.with_domains(domains, rng)
        if grown is network:
            return network, ""
        new = ", ".join(name for name in grown.domains if name not in network.domains)
        return grown, f"the model gets a new mask for {new}; it had masks for {', '.join(network.domains)}"

    def source_losses(self, network: Network, images: Tensor, labels: Tensor, smoothing: float) -> Losses:
        """What the source model learns from a labelled batch, before there is any target."""
        return {"cross_entropy": losses.label_smoothing(network(images).logits, labels, smoothing)}

    def setup(self, student: Network, loader: TargetImages) -> None:
        """A new target domain begins."""
        self.student = student
        self.loader = loader

    def parameters(self) -> list[Group]:
        """What is trained, with relative learning rates; everything unless a method says otherwise."""
        return trained(self.student, {"encoder": self.encoder_rate})

    def begin_epoch(self, progress: Progress) -> None:
        """Relabel, rebuild the bank."""
        self.progress = progress
        self.student.train()

    def step(self, batch: Batch) -> Losses:
        """The paper's equations: weighted terms by name."""
        raise NotImplementedError(f"{type(self).__name__} has no step")

    def before_update(self) -> None:
        """Between backward and the optimiser's step."""

    def after_update(self) -> None:
        """After the optimiser's step."""

    def end_epoch(self) -> None:
        """Teacher and student meet."""

    def predictor(self, domain: str | None = None) -> Network:
        """The model that is measured and carried on; most methods need no domain name for it."""
        return self.student

    def state_dict(self) -> dict[str, Any]:
        """What a resume needs beyond the student and the settings: tensors, numbers and texts, nested."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""


def trained(network: Network, rates: Mapping[str, float]) -> list[Group]:
    """One group for each part of the network that has parameters to train, at rate 1 unless given; 0 freezes.

    Parts that not every network has, such as masks, are trained where they are and where a rate is given.
    """
    groups = []
    for part in dict.fromkeys((*PARTS, *rates)):
        rate = rates.get(part, 1.0)
        module = getattr(network, part, None)
        parameters = [p for p in module.parameters() if p.requires_grad] if module is not None else []
        if rate > 0 and parameters:
            groups.append(Group(part, parameters, rate))
    return groups


def module_state(module: nn.Module) -> dict[str, Tensor]:
    """A network's tensors for `state_dict`."""
    return {key: value.detach() for key, value in module.state_dict().items()}
