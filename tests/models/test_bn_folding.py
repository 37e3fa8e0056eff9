"""Folding against the plain pass in eval mode, for networks of all kinds, and what it leaves as it is."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cosda.models import bn_folding as fold
from cosda.models.architecture import Architecture
from cosda.models.bn_folding import Folding, evaluating, find_pairs
from cosda.models.encoders.base import Identity
from cosda.models.masks import add_masks
from cosda.models.network import Network, to_device
from cosda.models.precision import Arithmetic
from cosda.models.statistics import batch_norms, batch_statistics, set_statistics, statistics_lent
from cosda.models.wrap import wrap

CPU = torch.device("cpu")
WORTH = 8


@pytest.fixture(autouse=True)
def _soon_worth_it(monkeypatch):
    """Fold for a handful already, so that tests are quick."""
    monkeypatch.setattr(fold, "WORTH", WORTH)


def lived_in(network):
    """BatchNorm that does something, as after training."""
    torch.manual_seed(1)
    for norm in batch_norms(network):
        norm.running_mean.normal_(0, 0.3)
        norm.running_var.uniform_(0.5, 2)
        if norm.affine:
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, 0, 0.2)
    return to_device(network, CPU)


def inputs(count=WORTH, side=32):
    images = torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(2))
    return images.contiguous(memory_format=torch.channels_last)


def plain(network, images):
    modes = [(module, module.training) for module in network.modules()]
    with torch.no_grad():
        found = network.eval()(images)
    for module, mode in modes:
        module.training = mode
    return found


def assert_same(network, images, folded):
    """The same logits, predictions and weights; ``folded`` layers out of all BatchNorms."""
    wanted, before = plain(network, images), copy.deepcopy(network.state_dict())
    modes = [module.training for module in network.modules()]
    with warnings.catch_warnings(), evaluating(network) as fast:
        warnings.simplefilter("error")
        got = fast(images)
        assert isinstance(fast, Network)
        left = len(list(batch_norms(fast.encoder.folded if isinstance(fast.encoder, Folding) else fast.encoder)))
    for one, other in zip(got, wanted, strict=True):
        assert (one - other).abs().max() <= 1e-4 * other.abs().max()
    assert torch.equal(got.logits.argmax(1), wanted.logits.argmax(1))
    assert left == len(list(batch_norms(network.encoder))) - folded
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert [module.training for module in network.modules()] == modes
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


# --- Networks of all kinds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "folded"), [("small", 9), ("resnet18", 20), ("resnet50", 53), ("lite0", 49)])
def test_built_in_encoders_are_folded_whole(name, folded):
    if name == "lite0":
        pytest.importorskip("efficientnet_lite_pytorch", reason="pip install 'cosda[lite0]'")
    assert_same(lived_in(Architecture(name, 8, 3).build("random")), inputs(), folded)


# BatchNorm with its activation inside, and before convolutions: the first ones of a dense layer have none to go into.
@pytest.mark.parametrize(("name", "folded"), [("efficientnet_b0", 49), ("densenet121", 59), ("convnext_atto", 0)])
def test_timm(timm, name, folded):
    assert_same(lived_in(Architecture(f"timm/{name}", 8, 3).build("random")), inputs(), folded)


@pytest.mark.parametrize(("name", "folded"), [("mobilenet_v2", 52), ("shufflenet_v2_x0_5", 56)])
def test_torchvision(torchvision, name, folded):
    assert_same(lived_in(Architecture(f"torchvision/{name}", 8, 3).build("random")), inputs(), folded)


def test_transformers(transformers):
    from cosda.models.encoders.external import PooledTransformer

    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    body = PooledTransformer(transformers.ResNetModel(transformers.ResNetConfig(**sizes)))
    network = lived_in(Network.build(body, 16, 8, 3))
    assert_same(network, inputs(), len(list(batch_norms(body))))


def test_a_model_of_the_users_own(own_classifier):
    network = lived_in(wrap(own_classifier, ("a", "b", "c")).network)
    assert_same(network, inputs(), 1)


def test_masks():
    network = lived_in(add_masks(Architecture("small", 8, 3).build(), 8, ["one", "two"]))
    seen = network.for_domain("two")
    assert_same(seen, inputs(), 9)
    with evaluating(seen) as fast:
        assert fast.domain == "two"


# --- What must not be folded ------------------------------------------------------------------------------------------


class Used(nn.Module):
    """Convolution and BatchNorm that other code depends on, in several ways."""

    def __init__(self, use):
        super().__init__()
        self.use = use
        self.conv, self.norm, self.other = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.BatchNorm2d(6)
        self.hidden = [self.norm]  # a reference that no tree of modules shows

    def forward(self, images):
        maps = self.conv(images)
        if self.use == "the output elsewhere":
            maps = self.norm(maps) + maps
        elif self.use == "the output in a list":
            maps = torch.stack([self.norm(maps), maps]).sum(0)
        elif self.use == "the convolution twice":
            maps = self.norm(maps) + self.conv(images.flip(3))
        elif self.use == "the norm twice":
            maps = self.norm(self.norm(maps))
        elif self.use == "two norms":
            maps = self.norm(maps) + self.other(maps)
        elif self.use == "hidden":
            maps = self.hidden[0](maps)
        elif self.use == "something between":
            maps = self.norm(maps.relu())
        elif self.use == "another weight":
            maps = self.norm(F.conv2d(images, self.conv.weight * 2, self.conv.bias))
        elif self.use == "batch statistics":
            maps = F.batch_norm(maps, self.norm.running_mean.clone(), self.norm.running_var.clone(), training=True)
        elif self.use == "numbers":
            maps = self.norm(maps) * float(maps.mean())
        return maps.mean(dim=(2, 3))


USES = [
    "the output elsewhere",
    "the output in a list",
    "the convolution twice",
    "the norm twice",
    "two norms",
    "hidden",
]


@pytest.mark.parametrize("use", [*USES, "something between", "another weight", "batch statistics", "numbers"])
def test_what_is_used_elsewhere_is_left_as_it_is(use):
    network = lived_in(Network(Used(use), nn.Identity(), nn.Linear(6, 3)))
    assert find_pairs(network.encoder.eval(), inputs(2, 16)) == {}
    assert_same(network, inputs(side=16), 0)


def test_untrained_networks_are_tried_with_statistics_that_show_a_mistake():
    assert find_pairs(Used("hidden").eval(), inputs(2, 16)) == {}  # its BatchNorm changes nothing yet
    assert find_pairs(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval(), inputs(2, 16)) == {"0": "1"}


def test_a_weight_that_is_computed_is_left_alone():
    conv = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 6, 3))
    encoder = nn.Sequential(conv, nn.BatchNorm2d(6), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    assert_same(lived_in(Network(encoder, nn.Identity(), nn.Linear(6, 3))), inputs(side=16), 0)


def test_convolutions_of_all_dimensions():
    for conv, norm, shape in (
        (nn.Conv1d(2, 5, 3, bias=False), nn.BatchNorm1d(5), (8, 2, 9)),
        (nn.Conv3d(2, 5, 3), nn.BatchNorm3d(5, affine=False), (8, 2, 5, 5, 5)),
    ):
        layers = nn.Sequential(conv, norm).eval()
        norm.running_var.uniform_(0.5, 2)
        images = torch.randn(shape)
        assert find_pairs(layers, images) == {"0": "1"}
        torch.testing.assert_close(fold.fold(layers, images)(images), layers(images))


# --- When -------------------------------------------------------------------------------------------------------------


def test_statistics_of_the_moment_are_folded():
    network, images = lived_in(Architecture("small", 8, 3).build()), inputs()
    own = plain(network, images).logits
    lent = [value + 0.5 for value in fold_statistics(network)]
    with statistics_lent(network, lent):
        wanted = plain(network, images).logits
        with evaluating(network) as fast:
            torch.testing.assert_close(fast(images).logits, wanted)
    with evaluating(network) as fast:
        torch.testing.assert_close(fast(images).logits, own)
    set_statistics(network, lent)
    with torch.no_grad():
        network.encoder.conv1.weight.mul_(0.5)
    wanted = plain(network, images).logits
    with evaluating(network) as fast:
        torch.testing.assert_close(fast(images).logits, wanted)
    assert not torch.allclose(own, wanted)


def fold_statistics(network):
    return [value.clone() for norm in batch_norms(network) for value in (norm.running_mean, norm.running_var)]


def test_within_batch_statistics_too_passes_use_the_running_ones():
    network, images = lived_in(Architecture("small", 8, 3).build()), inputs()
    wanted = plain(network, images).logits
    with batch_statistics(network), evaluating(network) as fast:
        torch.testing.assert_close(fast(images).logits, wanted)


def test_a_handful_of_images_is_not_worth_it(monkeypatch):
    network, images = lived_in(Architecture("small", 8, 3).build()), inputs()
    calls = []
    monkeypatch.setattr(fold, "fold", lambda encoder, images: calls.append(len(images)) or encoder)
    with evaluating(network) as fast:
        fast(images[: WORTH - 1])
        assert not calls
        fast(images[:0])  # the share of a process that has no row of a small batch
        assert not calls
        fast(images[:3])  # small batches add up
        fast(images[:3])
        assert calls == [3]


def test_heads_without_convolutions_and_compiled_networks_are_themselves():
    head, whole = Network.build(Identity(6), 6, 4, 3), Architecture("small", 8, 3).build()
    whole.arithmetic = Arithmetic(compiled=True)
    for network in (head, whole):
        with evaluating(network) as fast:
            assert fast is network


def test_passes_are_counted_once_each():
    network, images = Architecture("small", 8, 3).build(), inputs()
    before = Network.passes
    with evaluating(network) as fast:
        fast(images)
        fast(images)
    assert Network.passes == before + 2


def test_two_passes_at_a_time_do_not_disturb_each_other():
    network, images = lived_in(Architecture("small", 8, 3).build()).train(), inputs()
    wanted = plain(network, images).logits
    with evaluating(network) as outer:
        outer(images)
        with evaluating(network) as inner:
            torch.testing.assert_close(inner(images).logits, wanted)
        torch.testing.assert_close(outer(images).logits, wanted)
        torch.testing.assert_close(network(images).logits, wanted)
    assert all(module.training for module in network.modules())


def test_all_passes_without_learning_are_folded(monkeypatch, tmp_path):
    from cosda.methods.shot_plus import SHOTPlus
    from cosda.parts.bank import Bank
    from cosda.parts.prototypes import see_all
    from cosda.parts.rotation import new_head, train_head
    from cosda.run.evaluate import probabilities
    from cosda.run.features import featurise
    from cosda.watch import Watcher
    from tiny import SEEN, tiny_domain, tiny_loader, tiny_network

    folded = []
    real = fold.fold
    monkeypatch.setattr(fold, "fold", lambda encoder, images: folded.append(real(encoder, images)) or folded[-1])
    network, loader, rng = tiny_network(), tiny_loader(), torch.Generator()
    passes = {
        "evaluation": lambda: probabilities(network, loader),
        "bank": lambda: Bank.build(network, loader),
        "labels": lambda: see_all(network, loader),
        "rotation": lambda: train_head(new_head(6, False, CPU), network, loader, 1, 0.1, rng),
        "features": lambda: featurise(tiny_domain(), "x", network.encoder, SEEN, CPU, tmp_path, Watcher()),
    }
    for name, run in passes.items():
        run()
        assert not list(batch_norms(folded.pop())), name
        assert not folded, name
    SHOTPlus().setup(network, loader)  # one image, to see how wide features are
    assert not folded
