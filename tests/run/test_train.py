"""The only loop: SGD against a slow one, with a rate of its own for each part, momentum, Nesterov's too, and decay."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cosda.config.schema import Optimisation
from cosda.methods.base import Method
from cosda.models.network import PARTS, Network
from cosda.run.train import Epoch, Training
from cosda.types import Batch, Losses
from drift import grown
from tiny import tiny_loader

START = {"encoder": 2.0, "bottleneck": -1.0, "classifier": 0.5}
STEPS = 3  # of an epoch: 24 vectors in batches of 8


@dataclass
class Bowl(Method):
    """½·w² for each weight, so that the gradient is the weight itself."""

    def step(self, batch: Batch) -> Losses:
        return {"bowl": torch.stack([weight.square().sum() / 2 for weight in self.student.parameters()]).sum()}


def three_weights() -> Network:
    """One weight in each part."""
    network = Network(*(nn.Linear(1, 1, bias=False) for _ in PARTS))
    for part, value in START.items():
        nn.init.constant_(getattr(network, part).weight, value)
    return network


def descended(value: float, rate: float, settings: Optimisation) -> list[float]:
    """A weight after each epoch, one step after the other."""
    velocity, after = 0.0, []
    for epoch in range(settings.epochs):
        falling = (1 + math.cos(math.pi * epoch / settings.epochs)) / 2
        step_size = rate * (settings.lr_end + (settings.lr - settings.lr_end) * falling)
        for _ in range(STEPS):
            gradient = value + settings.weight_decay * value
            velocity = settings.momentum * velocity + gradient
            value -= step_size * (gradient + settings.momentum * velocity if settings.nesterov else velocity)
        after.append(value)
    return after


@pytest.mark.parametrize("encoder_rate", [1.0, 0.25])
@pytest.mark.parametrize(
    "given",
    [
        {"momentum": 0.0},
        {"momentum": 0.5},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.9, "weight_decay": 0.2},
    ],
    ids=lambda given: "-".join(given),
)
def test_weights_go_where_a_slow_loop_takes_them(given: dict[str, Any], encoder_rate: float) -> None:
    settings = Optimisation(**{"epochs": 3, "lr": 0.1, "lr_end": 0.02, "weight_decay": 0.0} | given)
    student, seen = three_weights(), []
    loader = tiny_loader("features", count=8 * STEPS, batch_size=8)
    training = Training(Bowl(encoder_rate=encoder_rate), student, loader, settings, 0, 1, "bowl")

    def look(facts: Epoch) -> None:
        seen.append({part: getattr(student, part).weight.item() for part in PARTS})
        assert facts.rates["encoder"] == pytest.approx(encoder_rate * facts.rates["classifier"])

    training.run(look)
    for part, value in START.items():
        wanted = descended(value, encoder_rate if part == "encoder" else 1.0, settings)
        assert [one[part] for one in seen] == pytest.approx(wanted, rel=1e-5), part


def test_with_a_shared_floor_all_parts_end_at_one_rate() -> None:
    """Half way along the cosine of two epochs each part is half way between its own start and the common end."""
    settings = Optimisation(epochs=2, lr=0.1, lr_end=0.02, shared_floor=True)
    training = Training(Bowl(encoder_rate=0.1), three_weights(), tiny_loader("features", count=8), settings, 0, 1, "b")
    seen: list[dict[str, float]] = []
    training.run(lambda facts: seen.append(facts.rates))
    assert seen[0] == pytest.approx({"encoder": 0.01, "bottleneck": 0.1, "classifier": 0.1})
    assert seen[1] == pytest.approx({"encoder": 0.015, "bottleneck": 0.06, "classifier": 0.06})


def test_the_facts_of_an_epoch_are_means_and_sums_of_its_steps() -> None:
    """The term is 1, 2 and 6 in the three steps of 8, 8 and 5 images; a network is asked once, twice and never."""

    @dataclass
    class Counting(Method):
        def step(self, batch: Batch) -> Losses:
            number = self.step_number = getattr(self, "step_number", 0) + 1
            for _ in range((1, 2, 0)[number - 1]):
                self.student(batch.images[:, :1])
            value = torch.tensor((1.0, 2.0, 6.0)[number - 1]) + 0 * self.student.classifier.weight.sum()
            return {"one": value, "half": value / 2}

    loader, seen = tiny_loader("features", count=21, batch_size=8), []
    settings = Optimisation(epochs=1, lr=0.1, lr_end=0.1)
    Training(Counting(), three_weights(), loader, settings, 0, 1, "counting").run(seen.append)
    [facts] = seen
    assert facts.terms == pytest.approx({"one": 3.0, "half": 1.5})
    assert (facts.epoch, facts.steps, facts.images, facts.passes) == (0, 3, 21, 1.0)
    assert facts.recorded == {
        **{"epoch": 0, "steps": 3, "images": 21, "passes": 1.0, "terms": facts.terms},
        "rates": {part: 0.1 for part in PARTS},
    }
    assert set(facts.timing) == {"epoch", "images", "seconds", "peak_bytes"}
    assert facts.timing["seconds"] > 0


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ((), 1 + 1 + 1),
        (("momentum=0.5",), 1 + 1.5 + 1.75),
        (("momentum=0.5", "nesterov=true"), 1.5 + 1.75 + 1.875),
        (("lr=0.5", "lr_end=0.5"), 1.5),
        (("lr_end=0",), 1 + 0.75 + 0.25),  # the cosine of three epochs
    ],
)
def test_settings_of_a_run_reach_the_optimiser(
    changes: tuple[str, ...], wanted: float, drifting: Any, tmp_path: Path
) -> None:
    """A gradient of 1 in each of three steps."""
    assert grown(drifting(tmp_path, (1.0, 1.0, 1.0), *changes), 1) == pytest.approx(wanted, rel=1e-5)
