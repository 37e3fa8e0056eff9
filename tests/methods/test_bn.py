"""BatchNorm re-estimation: the statistics are the plain mean over the target's batches, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from cosda.api import run_chain
from cosda.config.schema import Optimisation
from cosda.methods.bn import BN
from cosda.models.artifact import load
from cosda.models.network import Network, same_weights
from cosda.models.statistics import batch_norms, statistics
from cosda.run.chain import carried_path
from cosda.run.train import Training
from tiny import read, tiny_benchmark, tiny_loader, tiny_network


def adapted(student: Network, kind: str = "batch_norm", seed: int = 0, epochs: int = 1) -> Training:
    """One epoch of three batches: 8, 8 and 4 images."""
    loader = tiny_loader(kind, count=20, batch_size=8, seed=seed)
    training = Training(BN(), student, loader, Optimisation(epochs=epochs), seed, 1, "target")
    training.run(lambda facts: None)
    return training


def strange(network: Network) -> Network:
    """Statistics that no image has, and a count of batches as after a training."""
    for number, value in enumerate(statistics(network)):
        value.fill_(100.0 + number)
    for norm in batch_norms(network):
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked.fill_(77)
    return network


def seen(training: Training, epoch: int = 0) -> list[Tensor]:
    """Means over the epoch's batches of each layer's own mean and variance (with B - 1, as torch keeps it)."""
    twin = tiny_network("features" if training.loader.items.ndim == 2 else "batch_norm").train()
    inputs: dict[int, list[Tensor]] = {}
    for number, norm in enumerate(batch_norms(twin)):
        norm.register_forward_pre_hook(lambda _, given, number=number: inputs.setdefault(number, []).append(given[0]))  # type: ignore[misc]
    with torch.no_grad():
        for batch in training.loader.epoch(1, epoch, ("weak",)):
            twin(batch.images)
    found = []
    for batches in inputs.values():
        rows = [images.transpose(0, 1).flatten(1) for images in batches]  # (channels, values of the batch)
        found.append(torch.stack([row.mean(dim=1) for row in rows]).mean(dim=0))
        found.append(torch.stack([row.var(dim=1, correction=1) for row in rows]).mean(dim=0))
    return found


@pytest.mark.parametrize("kind", ["batch_norm", "features"])
def test_statistics_are_the_mean_over_the_batches_whatever_they_were_before(kind: str) -> None:
    student = strange(tiny_network(kind))
    training = adapted(student, kind)
    wanted, got = seen(training), statistics(student)
    assert len(got) == len(wanted) == (4 if kind == "batch_norm" else 2)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_every_epoch_and_every_target_begins_anew() -> None:
    student = tiny_network()
    adapted(student)
    training = adapted(student, seed=1, epochs=2)
    assert training.epoch == 2
    for one, other in zip(statistics(student), seen(training, epoch=1), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_weights_and_layers_stay_as_they_were() -> None:
    student, before = strange(tiny_network()), tiny_network()
    momenta = [0.1, 0.3]
    for norm, momentum in zip(batch_norms(student), momenta, strict=True):
        norm.momentum = momentum
    training = adapted(student)
    assert [norm.momentum for norm in batch_norms(student)] == momenta
    for (name, one), other in zip(student.named_parameters(), before.parameters(), strict=True):
        assert torch.equal(one, other), name
    assert training.method.parameters() == []
    assert training.method.predictor("target") is student


def test_a_network_without_batch_norm_stays_as_it_is() -> None:
    student = tiny_network("plain")
    adapted(student, "plain")
    assert same_weights(student, tiny_network("plain"))


def test_a_run_has_one_epoch_whatever_is_asked(tmp_path: Path) -> None:
    changes = ("epochs=5", "source.epochs=1", "network.bottleneck=8", "batch_size=8")
    run = run_chain(tiny_benchmark(features=True), "bn", domains=("one", "two"), settings=read(changes), out=tmp_path)
    [loss] = run.of("loss", stage=1)
    assert (loss["epoch"], loss["steps"], loss["terms"], loss["passes"]) == (0, 3, {}, 1.0)
    tracked = [int(norm.num_batches_tracked or 0) for norm in batch_norms(load(carried_path(run)).network)]
    assert tracked == [3]
