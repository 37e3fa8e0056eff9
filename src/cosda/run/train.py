"""The only loop and the only backward: source training and every method go through `train`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cosda.config.schema import AdaptSettings, Optimisation
from cosda.data.loader import Loader
from cosda.distributed import collectives
from cosda.errors import CosdaError, Diverged
from cosda.methods.base import Group, Method, Progress
from cosda.models.finite import about_inputs, largest_weight, not_finite
from cosda.models.network import Network
from cosda.models.statistics import statistics
from cosda.parts.dual_speed import MergedStatistics
from cosda.parts.schedule import cosine
from cosda.randomness import derive, stream
from cosda.run.checkpoint import alike
from cosda.run.memory import peak_bytes
from cosda.watch import Watcher

EXPLODED = 1e4  # times the largest weight at the beginning, or one if that is less; no training that works comes near


@dataclass
class Epoch:
    """The facts of one finished epoch."""

    epoch: int
    steps: int
    images: int
    rates: dict[str, float]
    terms: dict[str, float]
    passes: float  # of any network, for each step
    seconds: float
    peak_bytes: int  # of the process, or of the device

    @property
    def recorded(self) -> dict[str, Any]:
        """The facts that are equal for equal runs."""
        return {
            "epoch": self.epoch,
            "steps": self.steps,
            "images": self.images,
            "rates": self.rates,
            "terms": self.terms,
            "passes": self.passes,
        }

    @property
    def timing(self) -> dict[str, Any]:
        """The facts that are never equal twice."""
        facts = ("epoch", "seconds", "images", "peak_bytes")
        return {name: getattr(self, name) for name in facts}


@dataclass
class Training:
    """The training of one target: method, student and optimiser, ready to go on at `epoch`."""

    method: Method
    student: Network
    loader: Loader
    settings: Optimisation
    seed: int
    stage: int
    name: str
    watcher: Watcher = field(default_factory=Watcher)
    epoch: int = 0

    def __post_init__(self) -> None:
        self.method.setup(self.student, self.loader)
        self.groups = self.method.parameters()
        # Small gradients vanish in float16, so losses are scaled up before they go back; otherwise this does nothing.
        half = self.student.arithmetic.dtype is torch.float16
        self.scaler = torch.amp.GradScaler(self.loader.device.type, enabled=half)
        # When a first step overflows, and is left out, torch's fused SGD keeps a momentum that nobody has filled.
        self.optimiser = _optimiser(self.groups, self.settings, fused=not half)
        self.merged = MergedStatistics(self.student)
        self.began_with = largest_weight(self.student)
        self.updates = 0  # by this process
        self.now = 0  # the epoch that is trained, or was last

    def run(self, after_epoch: Callable[[Epoch], bool | None]) -> None:
        """Train the epochs that are left, or until ``after_epoch`` says that it is enough."""
        self._check_in_step("begin with other weights than each other", "Let all start from one model or seed.")
        if self.epoch:  # done before this process began
            self.watcher.advance(0, images=self.epoch * self.loader.epoch_length)
        while self.epoch < self.settings.epochs:
            facts = self._train_epoch()
            self.epoch += 1
            self._check_in_step(f"have come apart in epoch {self.epoch}", "Let all run on machines of one kind.")
            if after_epoch(facts):
                return

    def _train_epoch(self) -> Epoch:
        epoch, epochs = self.epoch, self.settings.epochs
        self.now = epoch
        rates = self._set_rates()
        # Networks with dropout draw from torch's global generator: it starts anew with each epoch. Of several
        # processes each drops out other features, because each has other images.
        rank = (collectives.rank(),) if collectives.rank() else ()
        torch.manual_seed(derive(self.seed, self.stage, epoch, "network", *rank))
        self.watcher.begin(f"{self.name} {epoch + 1}/{epochs}", self.loader.steps)
        start, images, passes, sums = time.perf_counter(), 0, 0, _Sums()
        self.loader.begin_epoch(epoch)
        self.method.begin_epoch(Progress(self.stage, epoch, epochs, stream(self.seed, self.stage, epoch, "method")))
        for batch in self.loader.epoch(self.stage, epoch, self.method.views):
            before = Network.passes
            terms = self.method.step(batch)
            passes += Network.passes - before
            values = self._update(terms)
            sums.add(values)
            images += len(batch)
            self.watcher.advance(images=len(batch), values=values)
        self.method.end_epoch()
        if isinstance(self.settings, AdaptSettings):
            self.merged.follow(self.student, cosine(*self.settings.merge_momentum, epoch, epochs))
        self.check_sound(self.student)
        seconds = time.perf_counter() - start
        self.watcher.end(**sums.means)
        return Epoch(
            epoch=epoch,
            steps=sums.count,
            images=images,
            rates=rates,
            terms=sums.means,
            passes=passes / max(1, sums.count),
            seconds=seconds,
            peak_bytes=peak_bytes(self.loader.device),
        )

    def _update(self, terms: dict[str, Tensor]) -> dict[str, float]:
        """Add the terms, go back, step; a method without terms (such as `bn`) has nothing to update."""
        values = {name: float(term.detach()) for name, term in terms.items()}
        for name, value in values.items():
            if not math.isfinite(value):
                raise self._diverged(f"the term '{name}' became {value}")
        if terms and self.optimiser is not None:
            self.optimiser.zero_grad(set_to_none=True)
            self.scaler.scale(torch.stack(list(terms.values())).sum()).backward()  # type: ignore[no-untyped-call]
            self._exchange([p.grad for p in self._parameters() if p.grad is not None])
            self.scaler.unscale_(self.optimiser)
            self.method.before_update()
            self.scaler.step(self.optimiser)
            self.scaler.update()
            self.updates += 1
            self.method.after_update()
        else:
            self._exchange([])
        return values

    def check_sound(self, network: Network) -> None:
        """Stop where weights or statistics mean nothing any more: before they are measured, saved or carried on."""
        if name := not_finite(network):
            raise self._diverged(f"the model became unusable: '{name}' is not finite")
        if (reach := largest_weight(network)) > EXPLODED * max(1.0, self.began_with):
            raise self._diverged(f"the model became unusable: weights reach {reach:.0e}")

    def _diverged(self, trouble: str) -> Diverged:
        """With advice that fits the cause."""
        section = "adapt" if isinstance(self.settings, AdaptSettings) else "source"
        if advice := about_inputs(self._largest_input()):
            pass
        elif self.updates or self.epoch:
            advice = f"Lower the learning rate: --set {section}.lr=… is {self.settings.lr:g} now."
        else:
            advice = "No weight was changed yet, so it is no matter of the learning rate: look at images and model."
        return Diverged(f"{trouble} in epoch {self.now + 1} on {self.name}. {advice}")

    def _largest_input(self) -> float:
        """Of feature vectors; images are never too large."""
        items = self.loader.items
        return float(max(items.max(), -items.min())) if isinstance(items, np.ndarray) and items.ndim == 2 else 0.0

    def _exchange(self, gradients: list[Tensor]) -> None:
        """Let all processes have the same gradients, and the same running statistics in the student's BatchNorm."""
        if collectives.world() > 1:
            collectives.mean_over_ranks([*gradients, *statistics(self.student)])

    def _check_in_step(self, trouble: str, advice: str) -> None:
        """All processes must hold the same bits; what one alone writes is then that of all."""
        if collectives.world() > 1 and not alike(self.state_dict()):
            raise CosdaError(f"the processes of this run {trouble} on {self.name}. {advice}")

    def _set_rates(self) -> dict[str, float]:
        """All groups fall in proportion, so no rate ever rises; or all end at one rate, as in the authors' schedule."""
        settings = self.settings
        starts = {group.name: settings.lr * group.rate for group in self.groups}
        if settings.shared_floor:
            rates = {
                name: cosine(start, settings.lr_end, self.epoch, settings.epochs) for name, start in starts.items()
            }
        else:
            floor = settings.lr_end / settings.lr if settings.lr else 1.0
            factor = cosine(1.0, floor, self.epoch, settings.epochs)
            rates = {name: start * factor for name, start in starts.items()}
        for group in self.optimiser.param_groups if self.optimiser else ():
            group["lr"] = rates[group["name"]]
        return rates

    def statistics(self, kind: str, predictor: Network) -> list[Tensor]:
        """A copy of the student's own BatchNorm statistics, or of those merged over domains."""
        if kind == self.method.native_statistics:
            chosen = statistics(predictor)
        else:
            chosen = statistics(self.student) if kind == "own" else self.merged.values
        return [value.clone() for value in chosen]

    def state_dict(self) -> dict[str, Any]:
        """All that a resume needs."""
        return {
            "epoch": self.epoch,
            "student": self.student.state_dict(),
            "method": self.method.state_dict(),
            "momentum": [self._momentum(parameter) for parameter in self._parameters()],
            "merged": self.merged.values,
            "scaler": self.scaler.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self.epoch = int(state["epoch"])
        self.student.load_state_dict(state["student"])
        self.method.load_state_dict(state["method"])
        self.merged.values = list(state["merged"])
        if state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        for parameter, buffer in zip(self._parameters(), state["momentum"], strict=True):
            if self.optimiser is not None and buffer is not None:
                # The same memory layout as before, so that the optimiser's arithmetic gives the same bits.
                self.optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(buffer)

    def _parameters(self) -> Iterator[nn.Parameter]:
        for group in self.groups:
            yield from group.parameters

    def _momentum(self, parameter: nn.Parameter) -> Tensor | None:
        """None before the first step, and for parameters that have had no gradient yet."""
        return self.optimiser.state[parameter].get("momentum_buffer") if self.optimiser else None


def _optimiser(groups: list[Group], settings: Optimisation, fused: bool) -> torch.optim.SGD | None:
    if not groups:
        return None
    return torch.optim.SGD(
        [{"params": group.parameters, "name": group.name, "lr": settings.lr * group.rate} for group in groups],
        lr=settings.lr,
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        weight_decay=settings.weight_decay,
        fused=fused,
    )


class _Sums:
    """Means of the loss terms over an epoch."""

    def __init__(self) -> None:
        self.count = 0
        self.totals: dict[str, float] = {}

    def add(self, values: dict[str, float]) -> None:
        self.count += 1
        for name, value in values.items():
            self.totals[name] = self.totals.get(name, 0.0) + value

    @property
    def means(self) -> dict[str, float]:
        return {name: total / self.count for name, total in self.totals.items()}
