"""Counts, probabilities and features against slow loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from cosda.data.loader import Loader
from cosda.data.views import make_view
from cosda.errors import CosdaError
from cosda.models.bn_folding import evaluating
from cosda.models.network import Network
from cosda.run import evaluate
from cosda.run.evaluate import embed, measure, outputs, probabilities
from tiny import CPU, SEEN, tiny_domain, tiny_network

COUNT = 23  # not divisible by the batch size


def loader_of(domain, batch_size=5, positions=None):
    return Loader(domain.items, np.arange(len(domain)) if positions is None else positions, SEEN, CPU, batch_size)


def alone(network, domain, position):
    """The output for one image, in eval mode."""
    network.eval()
    with torch.no_grad():
        view = make_view("test", torch.from_numpy(domain.items[[position]]), SEEN, torch.Generator())
        return network(view)


@pytest.fixture
def network():
    made = tiny_network()
    for _ in range(5):  # statistics that are not those of any batch
        made.train()(torch.randn(8, 3, 16, 16))
    return made


# --- measure ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [5, 1, 64])
def test_counts_equal_a_slow_loop(network, batch_size):
    domain = tiny_domain(count=COUNT)
    images, correct = [0, 0, 0, 0], [0, 0, 0, 0]
    for position, label in enumerate(domain.labels.tolist()):
        images[label] += 1
        correct[label] += int(alone(network, domain, position).logits.argmax()) == label
    network.train()
    assert measure(network, loader_of(domain, batch_size), domain.labels, 4) == (images, correct)
    assert sum(images) == COUNT
    assert images[3] == 0  # a class that does not occur has its place
    assert all(type(n) is int for n in images + correct)  # counts go into JSON


def test_one_image_whose_prediction_is_no_number_is_enough_to_stop(network):
    domain = tiny_domain(count=COUNT)
    seen = []

    def spoil(module, given, logits):
        seen.append(len(logits))
        if len(seen) == 2:
            logits[1, 2] = torch.nan
        return logits

    network.classifier.register_forward_hook(spoil)
    with pytest.raises(CosdaError, match="its predictions are not numbers"):
        measure(network, loader_of(domain), domain.labels, 4)
    assert seen == [5, 5]


def test_labels_belong_to_the_positions_of_the_loader(network):
    domain = tiny_domain(count=COUNT)
    positions = np.array([22, 3, 7, 1, 15, 9])
    labels = domain.labels[positions]
    right = [int(alone(network, domain, p).logits.argmax()) == y for p, y in zip(positions, labels, strict=True)]
    images, correct = measure(network, loader_of(domain, 4, positions), labels, 3)
    assert images == [int((labels == c).sum()) for c in range(3)]
    assert correct == [sum(r for r, y in zip(right, labels, strict=True) if y == c) for c in range(3)]


def test_counts_of_a_classifier_that_always_says_one_thing():
    head = nn.Linear(1, 3)
    nn.init.zeros_(head.weight)
    head.bias.data = torch.tensor([0.0, 5.0, 1.0])
    constant = Network(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 1)), nn.Identity(), head)
    domain = tiny_domain(count=COUNT)  # 8, 8 and 7 of each class
    assert measure(constant, loader_of(domain), domain.labels, 3) == ([8, 8, 7], [0, 8, 0])


def test_probabilities_are_in_order_and_of_eval_mode(network):
    domain = tiny_domain(count=COUNT)
    got = probabilities(network.train(), loader_of(domain))
    assert (got.shape, got.dtype) == ((COUNT, 3), np.float32)
    wanted = np.concatenate([alone(network, domain, i).logits.softmax(1).numpy() for i in range(COUNT)])
    np.testing.assert_allclose(got, wanted, atol=1e-6)
    np.testing.assert_allclose(got.sum(1), 1, atol=1e-6)


def test_measuring_changes_nothing(network):
    domain = tiny_domain(count=COUNT)
    before = {key: value.clone() for key, value in network.train().state_dict().items()}
    measure(network, loader_of(domain), domain.labels, 3)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert all(module.training for module in network.modules())


# --- evaluating -------------------------------------------------------------------------------------------------------


def mixed_modes(network):
    network.train()
    network.encoder.eval()
    network.encoder[1].train()
    return [module.training for module in network.modules()]


def test_mixed_modes_come_back_even_after_an_error(network):
    before = mixed_modes(network)
    with evaluating(network):
        assert not any(module.training for module in network.modules())
        assert torch.is_inference_mode_enabled()
    assert [module.training for module in network.modules()] == before
    with pytest.raises(RuntimeError, match="boom"), evaluating(network):
        raise RuntimeError("boom")
    assert [module.training for module in network.modules()] == before
    assert not torch.is_inference_mode_enabled()


def test_a_pass_that_is_broken_off_leaves_the_modes_as_they_were(network):
    before = mixed_modes(network)
    passes = outputs(network, loader_of(tiny_domain(count=COUNT)))
    next(passes)
    passes.close()
    assert [module.training for module in network.modules()] == before
    assert not torch.is_inference_mode_enabled()


# --- embed ------------------------------------------------------------------------------------------------------------


def test_features_are_centred_components_that_keep_all_distances(network):
    domains = [tiny_domain("a", 9, seed=0), tiny_domain("b", 7, seed=2)]
    parts = [(0, loader_of(domains[0]), domains[0].labels), (4, loader_of(domains[1]), None)]
    got = embed(network, parts, seed=0)
    assert got["features"].shape == (16, 6)  # fewer components than 50: the bottleneck's width
    assert got["features"].dtype == np.float16
    assert got["domain"].tolist() == [0] * 9 + [4] * 7
    assert got["label"].tolist() == domains[0].labels.tolist() + [-1] * 7
    whole = np.concatenate([alone(network, d, i).features.numpy() for d in domains for i in range(len(d))])
    wanted = np.linalg.norm(whole[:, None] - whole[None], axis=2)
    small = got["features"].astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(small[:, None] - small[None], axis=2), wanted, atol=0.02)
    np.testing.assert_allclose(small.mean(0), 0, atol=0.01)
    spread = small.var(0)
    assert (spread[:-1] >= spread[1:] - 1e-3).all()  # the first component says most


def test_a_sample_of_a_large_domain_with_the_labels_of_its_positions(network, monkeypatch):
    monkeypatch.setattr(evaluate, "EMBEDDED", 10)
    monkeypatch.setattr(evaluate, "COMPONENTS", 2)
    domain = tiny_domain(count=40)
    unlike = replace(domain, labels=np.arange(40, dtype=np.int64) + 100)
    loader = loader_of(unlike, positions=np.arange(40)[::-1][:30].copy())
    got, again, other = (embed(network, [(0, loader, unlike.labels)], seed) for seed in (0, 0, 1))
    assert got["features"].shape == (10, 2)
    assert set(got["label"].tolist()) <= set(range(110, 140))
    assert len(set(got["label"].tolist())) == 10
    assert all(np.array_equal(got[key], again[key]) for key in got)
    assert got["label"].tolist() != other["label"].tolist()
