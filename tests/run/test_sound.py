"""Weights and statistics that mean nothing stop a training and are never saved; the advice fits the cause."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import cosda
from cosda.config.schema import AdaptSettings, Optimisation
from cosda.errors import CosdaError, Diverged
from cosda.methods.base import Method
from cosda.methods.bn import BN
from cosda.models.architecture import Architecture
from cosda.models.artifact import Model, load
from cosda.models.finite import not_finite
from cosda.models.network import Network
from cosda.preprocessing import FEATURE_VECTORS
from cosda.run.train import EXPLODED, Training
from cosda.types import Batch, Losses
from tiny import CLASSES, WIDTH, tiny_domain, tiny_loader, tiny_network

ONCE = {"epochs": 1, "lr": 0.1, "lr_end": 0.1}


def training(method: Method, scale: float = 1.0, **changes: float) -> Training:
    """Of a tiny network of feature vectors."""
    loader = tiny_loader("features", count=8)
    loader.items = np.asarray(loader.items) * np.float32(scale)
    settings = AdaptSettings(**{**ONCE, **changes})  # type: ignore[arg-type]
    return Training(method, tiny_network("features"), loader, settings, 0, 1, "one")


def refused(one: Training) -> str:
    """Why it stops; nobody must see what it made."""
    with pytest.raises(Diverged) as caught:
        one.run(lambda facts: pytest.fail("an epoch that is unsound was handed on"))
    return str(caught.value)


@dataclass
class Pushed(Method):
    """Every weight has a gradient of one."""

    value: float = 0.0  # of the loss

    def step(self, batch: Batch) -> Losses:
        total = torch.stack([weight.sum() for weight in self.student.parameters()]).sum()
        return {"push": total - total.detach() + self.value}


def test_statistics_of_huge_features_are_never_handed_on() -> None:
    said = refused(training(BN(), scale=1e30))
    assert "'bottleneck.1.running_var' is not finite in epoch 1 on one" in said
    assert "The inputs reach" in said
    assert "scale the features" in said
    assert "learning rate" not in said


@pytest.mark.parametrize("lr", [1e6, 1e30])
def test_weights_that_explode_in_the_last_step(lr: float) -> None:
    said = refused(training(Pushed(), lr=lr))
    assert "weights reach" in said
    assert f"Lower the learning rate: --set adapt.lr=… is {lr:g} now" in said


def test_weights_that_are_not_numbers_after_the_last_step() -> None:
    """The loss is finite in each step, and its gradient is none in the last."""

    class Edge(Method):
        def step(self, batch: Batch) -> Losses:
            weight = self.student.classifier.bias
            return {"edge": (weight - weight.detach()).abs().sqrt().sum()}

    said = refused(training(Edge()))
    assert "'classifier.bias' is not finite" in said


def test_the_source_has_a_rate_of_its_own() -> None:
    one = training(Pushed())
    one.settings = Optimisation(epochs=1, lr=1e6, lr_end=1e6)
    one.__post_init__()
    assert "--set source.lr=…" in refused(one)


def test_before_the_first_step_it_is_not_the_rate() -> None:
    said = refused(training(Pushed(value=float("inf"))))
    assert "the term 'push' became inf" in said
    assert "no matter of the learning rate" in said


def test_large_rates_that_leave_sound_weights_are_nobodys_business() -> None:
    one = training(Pushed(), lr=EXPLODED / 10, lr_end=0)
    one.run(lambda facts: None)
    assert one.epoch == 1


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def model() -> Model:
    return Model(tiny_network("features"), Architecture("identity:12", 6, 3, WIDTH), CLASSES, FEATURE_VECTORS, [])


def damage(network: Network, what: str, value: float = float("nan")) -> None:
    with torch.no_grad():
        network.state_dict()[what].view(-1)[0] = value


@pytest.mark.parametrize("what", ["bottleneck.0.weight", "bottleneck.1.running_var", "classifier.bias"])
def test_a_model_that_is_not_finite_is_not_saved(model: Model, tmp_path: Path, what: str) -> None:
    damage(model.network, what, float("inf"))
    with pytest.raises(CosdaError, match=f"the model is unusable: '{what}' holds values that are not finite"):
        model.save(tmp_path / "model")
    assert not any(tmp_path.iterdir())


def test_nor_loaded_and_the_learning_rate_is_not_blamed(model: Model, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    state = load_file(folder / "head.safetensors")
    state["classifier.bias"][0] = float("nan")
    save_file(state, folder / "head.safetensors")
    description = json.loads((folder / "model.json").read_text())
    sha256 = hashlib.sha256((folder / "head.safetensors").read_bytes()).hexdigest()
    description["sha256"]["head.safetensors"] = sha256
    (folder / "model.json").write_text(json.dumps(description))
    with pytest.raises(CosdaError, match=r"model is unusable: 'classifier\.bias'.* take an older copy") as caught:
        load(folder)
    assert "rate" not in str(caught.value)


def test_nor_adapted(model: Model, tmp_path: Path) -> None:
    damage(model.network, "bottleneck.0.weight")
    with pytest.raises(CosdaError, match="the given model is unusable"):
        cosda.adapt(model, tiny_domain("two", features=True), "nrc", out=tmp_path, epochs=1)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_buffers_that_mean_to_be_infinite_may_be_so(model: Model) -> None:
    model.network.register_buffer("mask", torch.full((2,), -float("inf")))
    assert not_finite(model.network) == ""


def test_features_too_large_to_be_squared_are_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(CosdaError, match=r"holds values up to 1e\+30, and 1e\+12 is the limit. Scale the features"):
        cosda.load_domain(np.full((6, 3), -1e30))
