import copy
import io
import warnings

import pytest
import torch
from torch import nn

from cosda.distributed import collectives, env
from cosda.errors import CosdaError
from cosda.models.architecture import Architecture
from cosda.models.artifact import Model
from cosda.models.encoders.base import Identity
from cosda.models.masks import MaskedNetwork, add_masks
from cosda.models.network import Network, freeze, same_weights, weights
from cosda.models.statistics import FeatureNorm
from cosda.preprocessing import IMAGENET


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


def test_another_encoder_shares_the_head(network) -> None:
    other = network.with_encoder(freeze(nn.Linear(2, 6)))
    assert other.classifier is network.classifier
    assert not any(parameter.requires_grad for parameter in other.encoder.parameters())
    assert other(torch.zeros(2, 2)).logits.shape == (2, 3)


# --- A plain module -----------------------------------------------------------------------------------------------


def of_kind(kind):
    """A network in evaluation mode with a batch of five that it takes."""
    torch.manual_seed(0)
    if kind == "features":
        return Network.build(Identity(6), 6, bottleneck=4, classes=3).eval(), torch.randn(5, 6)
    network = Architecture("small", bottleneck=4, classes=3).build()
    if kind == "masked":
        network = add_masks(network, 4, ("one", "two")).for_domain("two")
    return network.eval(), torch.randn(5, 3, 32, 32)


KINDS = ("images", "features", "masked")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("copied", [False, True])
def test_a_network_traced_at_one_batch_size_runs_at_any_other(kind, copied):
    network, batch = of_kind(kind)
    network = copy.deepcopy(network) if copied else network  # as a teacher is
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(network, batch[:2])
    for count in (1, 2, 3, 5):
        features, logits = traced(batch[:count])
        torch.testing.assert_close(logits, network(batch[:count]).logits)
        torch.testing.assert_close(features, network(batch[:count]).features)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_network_is_exported_with_a_dynamic_batch(kind, strict):
    network, batch = of_kind(kind)
    sizes = ({0: torch.export.Dim("batch")},)
    exported = torch.export.export(network, (batch[:2],), dynamic_shapes=sizes, strict=strict).module()
    for count in (1, 5):
        torch.testing.assert_close(exported(batch[:count]).logits, network(batch[:count]).logits)


def test_forward_never_shares_a_batch_and_a_call_does(monkeypatch):
    """The second of two processes: a call works on its own rows, forward on all that it is given."""
    network, batch = of_kind("masked")
    monkeypatch.setattr(collectives, "_here", env.Place(1, 2, 1))
    gathered = []

    def gather(rows, count):
        gathered.append((rows, count))
        return torch.cat([torch.zeros(count - len(rows), rows.shape[1]), rows])

    monkeypatch.setattr(collectives, "gather_rows", gather)
    whole = network.forward(batch)
    assert len(whole.logits) == 5
    assert not gathered
    for other in (network, copy.deepcopy(network), network.with_encoder(network.encoder)):
        torch.testing.assert_close(other(batch).logits[3:], whole.logits[3:])
        torch.testing.assert_close(other.for_domain("two").heads(batch)[1].logits[3:], whole.logits[3:])
    assert [(len(rows), rows.shape[1], count) for rows, count in gathered] == [(2, 4 + 3, 5), (2, 2 * (4 + 3), 5)] * 3


def test_passes_are_counted_when_a_network_is_called():
    network, batch = of_kind("masked")
    before = Network.passes
    network(batch)
    network.heads(batch)
    assert Network.passes == before + 2


def described(network):
    domains = network.domains if isinstance(network, MaskedNetwork) else ()
    return Model(network, Architecture("small", 4, 3, domains=domains), ("a", "b", "c"), IMAGENET)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_gives_a_plain_module_of_logits(kind):
    network, batch = of_kind(kind)
    model = described(network.train())
    torch.manual_seed(3)
    module = model.module("two" if kind == "masked" else None)
    after = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(1), after)  # no random numbers were drawn
    assert network.training
    assert not module.training
    logits = module(batch)
    assert torch.equal(logits, network.eval()(batch).logits)
    assert {"classifier.weight", "classifier.bias"} <= module.state_dict().keys()
    file = io.BytesIO()
    torch.save(module, file)  # weight norm could not be stored so
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(batch), logits)
    with torch.no_grad():
        module.classifier.weight.zero_()
    assert torch.equal(network(batch).logits, logits)


def test_a_module_of_a_network_with_masks_needs_to_know_the_domain():
    model = described(of_kind("masked")[0])
    with pytest.raises(CosdaError, match="must be told which domain"):
        model.module()
    assert not torch.equal(model.module("one").mask.values, model.module("two").mask.values)
