"""Inputs that stand in for lost ones: made from the network alone, and a network that forgot answers otherwise."""

from __future__ import annotations

import copy

import pytest
import torch

from cosda.judge.stand_ins import drawn, stand_ins
from cosda.models.network import Network, same_weights
from cosda.models.profile import make_profile
from cosda.models.router import spread_over
from tiny import tiny_loader, tiny_network


def inputs(kind: str) -> torch.Tensor:
    return next(iter(tiny_loader(kind).sweep("test"))).images


def trained(kind: str) -> Network:
    """A network that has seen images, so that its BatchNorm layers remember some."""
    network, loader = tiny_network(kind).train(), tiny_loader(kind, count=30)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    for epoch in range(30):
        for batch in loader.epoch(0, epoch):
            loss = torch.nn.functional.cross_entropy(network(batch.images).logits, batch.index % 3)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network.eval()


@pytest.mark.parametrize("kind", ["batch_norm", "features"])
def test_the_network_takes_them_for_its_own(kind: str) -> None:
    network = trained(kind)
    before = copy.deepcopy(network)
    made = stand_ins(network.train(), inputs(kind))
    assert made is not None
    assert made.shape[1:] == inputs(kind).shape[1:]
    assert same_weights(network, before)
    assert network.training, "it is left as it was"
    said = network.eval()(made).logits.argmax(dim=1)
    assert (said == torch.arange(len(made)) % 3).double().mean() > 0.6, "each class has as many"


def test_they_follow_from_the_seed() -> None:
    network = tiny_network()
    first, again, other = (stand_ins(network, inputs("batch_norm"), seed) for seed in (0, 0, 1))
    assert first is not None
    assert again is not None
    assert other is not None
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_network_that_forgot_answers_otherwise_and_one_that_did_not_does_not() -> None:
    network = trained("batch_norm")
    made = stand_ins(network, inputs("batch_norm"))
    assert made is not None
    nearly, forgetful = copy.deepcopy(network), tiny_network(seed=5).eval()
    with torch.no_grad():
        for parameter in nearly.parameters():
            parameter += 1e-4
        was, still, now = (one(made).logits.argmax(dim=1) for one in (network, nearly, forgetful))
    assert (was == still).double().mean() > 0.98
    assert (was == now).double().mean() < 0.7


def test_a_network_without_batch_norm_remembers_nothing() -> None:
    assert stand_ins(tiny_network("plain"), inputs("plain")) is None


def test_feature_vectors_are_drawn_from_the_profile_and_not_from_the_new_domain() -> None:
    own = torch.randn(400, 8, generator=torch.Generator().manual_seed(0)) @ torch.diag(torch.arange(1.0, 9.0)) + 50
    new = own[:100] + 3
    made = drawn(make_profile("one", own, late=True), new)
    assert made is not None
    assert (made.mean(dim=0) - own.mean(dim=0)).abs().max() < 1.0
    assert torch.allclose(made.std(dim=0), own.std(dim=0), rtol=0.2)
    again = drawn(make_profile("one", own, late=True), new)
    assert again is not None
    assert torch.equal(made, again)


def test_numbers_that_a_profile_lacks_follow_from_those_it_has() -> None:
    """A profile has 256 numbers of a feature vector; here each number comes twice."""
    half = torch.randn(600, 256, generator=torch.Generator().manual_seed(0)) + 10
    own = half.repeat_interleave(2, dim=1)
    columns = spread_over(512, 256)
    made = drawn(make_profile("one", own[:, columns], late=True), own[:500] + 1)
    assert made is not None
    both = made[:, 0::2], made[:, 1::2]
    assert torch.corrcoef(torch.stack([each.flatten() for each in both]))[0, 1] > 0.7
    assert abs(float(made.mean()) - 10) < 0.2


def test_nothing_is_drawn_from_a_profile_of_early_layers_or_for_images() -> None:
    own = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    assert drawn(None, own) is None
    assert drawn(make_profile("one", own), own) is None
    assert drawn(make_profile("one", own, late=True), inputs("batch_norm")) is None
