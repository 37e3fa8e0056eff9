import copy

import pytest
import torch
from torch import nn

from cosda.models.encoders.base import Identity
from cosda.models.network import Network, freeze, same_weights, weights
from cosda.models.statistics import FeatureNorm, batch_norms, statistics


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    return Network.build(Identity(6), 6, bottleneck=4, classes=3)


def test_head_starts_as_the_paper_says(network) -> None:
    linear, norm = network.bottleneck
    assert isinstance(norm, FeatureNorm)
    assert linear.bias.eq(0).all()
    assert network.classifier.bias.eq(0).all()
    magnitude, direction = weights(network.classifier)[1:]
    torch.testing.assert_close(magnitude.flatten(), direction.norm(dim=1))


def test_a_training_batch_of_one_uses_running_statistics(network) -> None:
    one = torch.randn(1, 6)
    before = copy.deepcopy(network.state_dict())
    in_training = network.train()(one).logits
    assert torch.equal(in_training, network.eval()(one).logits)
    assert all(torch.equal(network.state_dict()[key], value) for key, value in before.items())


def test_copies_after_a_backward(network) -> None:
    network(torch.randn(4, 6)).logits.sum().backward()
    copied = copy.deepcopy(network)
    assert same_weights(copied, network)
    with torch.no_grad():
        weights(copied)[0].add_(1)
    assert not same_weights(copied, network)


def test_statistics_are_the_tensors_themselves(network) -> None:
    mean, variance = statistics(network)
    assert mean is network.bottleneck[1].running_mean
    assert variance is network.bottleneck[1].running_var
    assert list(batch_norms(nn.LayerNorm(3))) == []


def test_another_encoder_shares_the_head(network) -> None:
    other = network.with_encoder(freeze(nn.Linear(2, 6)))
    assert other.classifier is network.classifier
    assert not any(parameter.requires_grad for parameter in other.encoder.parameters())
    assert other(torch.zeros(2, 2)).logits.shape == (2, 3)
