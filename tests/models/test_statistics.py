"""Running statistics of BatchNorm: found, replaced for a while, and left alone under those of a batch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cosda.models.statistics import batch_norms, batch_statistics, set_statistics, statistics, statistics_lent
from tiny import tiny_network


def images(seed=0, count=6):
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


def disturb(network, seed=1):
    """Other weights and other statistics."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in [*network.parameters(), *statistics(network)]:
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.1)


def test_statistics_are_the_tensors_themselves():
    network = tiny_network()
    norm = network.bottleneck[1]
    assert [id(value) for value in statistics(network)[2:]] == [id(norm.running_mean), id(norm.running_var)]
    assert list(batch_norms(nn.LayerNorm(3))) == []


def test_other_statistics_are_lent_and_given_back_even_after_an_error():
    network = tiny_network()
    own = [value.clone() for value in statistics(network)]
    other = [value + 1 for value in own]
    with statistics_lent(network, other):
        assert all(torch.equal(value, lent) for value, lent in zip(statistics(network), other, strict=True))
    with pytest.raises(RuntimeError, match="boom"), statistics_lent(network, other):
        raise RuntimeError("boom")
    assert all(torch.equal(value, before) for value, before in zip(statistics(network), own, strict=True))
    set_statistics(network, other)
    assert all(torch.equal(value, lent) for value, lent in zip(statistics(network), other, strict=True))


def test_a_network_without_batch_norm_has_no_statistics_to_set():
    network = tiny_network("plain")
    set_statistics(network, [])
    with statistics_lent(network, []):
        assert statistics(network) == []


def test_batch_statistics_gives_the_output_of_train_mode_and_leaves_the_buffers():
    network, twin = tiny_network().eval(), tiny_network().train()
    disturb(network)
    disturb(twin)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    with batch_statistics(network):
        inside = network(images()).logits
    torch.testing.assert_close(inside, twin(images()).logits, rtol=0, atol=0)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert not torch.allclose(inside, network(images()).logits)
    # And the layers keep statistics again afterwards.
    network.train()(images())
    assert not torch.equal(statistics(network)[0], before["encoder.1.running_mean"])


def test_modes_come_back_even_after_an_error():
    network = tiny_network().eval()
    norms = list(batch_norms(network))
    norms[0].train()
    with batch_statistics(network):
        assert all(norm.training and not norm.track_running_stats for norm in norms)
        assert not network.classifier.training
    with pytest.raises(RuntimeError, match="boom"), batch_statistics(network):
        raise RuntimeError("boom")
    assert [norm.training for norm in norms] == [True, False]
    assert all(norm.track_running_stats for norm in norms)


def test_a_network_without_batch_norm_has_nothing_to_switch():
    network = tiny_network("plain").eval()
    with batch_statistics(network):
        inside = network(images()).logits
    assert torch.equal(inside, network(images()).logits)
