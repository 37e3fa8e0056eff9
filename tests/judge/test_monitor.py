"""What is said of new images: known, a mixture, new, or that it cannot be told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from cosda.data.domain import everything
from cosda.data.loader import Loader
from cosda.errors import CosdaError
from cosda.judge.monitor import watch
from cosda.models.experts import DomainBank, Expert
from cosda.models.network import Network
from cosda.models.profile import PLACES
from cosda.models.router import Gauge
from cosda.preprocessing import FEATURE_VECTORS
from cosda.run.profile import Look
from tiny import CPU, SEEN, tiny_domain, tiny_network

KINDS = ("batch_norm", "plain", "features")


def loader(shift: int, first: int = 0, count: int = 200, kind: str = "batch_norm") -> Loader:
    """Images of a domain with so large a shift, beginning with one of them."""
    features = kind == "features"
    domain = tiny_domain(f"shift {shift}", 600, seed=shift, features=features)
    how = FEATURE_VECTORS if features else SEEN
    return Loader(domain.items, everything(600)[first : first + count], how, CPU, 64)  # type: ignore[arg-type]


def together(*parts: Loader) -> Loader:
    items = np.concatenate([part.items[part.positions] for part in parts])
    return replace(parts[0], items=items, positions=everything(len(items)))


def knowing(kind: str = "batch_norm", trained_on: bool = False) -> Network:
    """A network with a profile of the domain without shift."""
    network = tiny_network(kind).eval()
    look = Look("home", False, loader(0, kind=kind))
    network.profile = look.profile(Gauge(network.encoder), network, stranger=None if trained_on else network)
    return network


def bank_of(network: Network, shift: int) -> DomainBank:
    """The same with an expert (that answers as the network) for a domain."""
    bank = DomainBank(network, ())
    profile = Look("away", False, loader(shift)).profile(bank.gauge, network, bank.profiles, stranger=network)
    return bank.with_expert(Expert.make(network, network, 4, profile))


@pytest.mark.parametrize("kind", KINDS)
def test_new_images_of_a_known_domain_are_known_and_others_are_not(kind: str) -> None:
    network = knowing(kind)
    same = watch(network, loader(0, 300, kind=kind), "today", 0.05)
    assert (same.adapt, same.known, same.domains) == (False, True, ("home",))
    assert same.reason == "they look like home, which the model was trained on"
    assert same.shares == {"home": 1.0}
    other = watch(network, loader(4, 300, kind=kind), "today", 0.05)
    assert (other.adapt, other.known) == (True, False)
    assert other.reason.startswith("they differ from home (early, features")
    assert other.p_value is not None
    assert other.p_value <= 0.003
    assert set(other.places) == {"early", "features", "predictions"}
    assert None not in other.places.values()


def test_of_a_profile_of_training_images_only_early_layers_are_compared() -> None:
    found = watch(knowing(trained_on=True), loader(4), "today", 0.05)
    assert found.adapt is True
    assert found.places["early"] == found.p_value
    assert found.places["features"] is found.places["predictions"] is None


def test_features_that_were_learnt_from_the_images_are_not_compared_with_them() -> None:
    """A network without normalisation layers has no early layers: its routing statistics are its features."""
    network = tiny_network("plain").eval()
    network.encoder = nn.Sequential(*(layer for layer in network.encoder if not isinstance(layer, nn.GroupNorm)))  # type: ignore[union-attr]
    look, gauge = Look("home", False, loader(0)), Gauge(network.encoder)
    assert look.profile(gauge, network).groups == {}
    assert set(look.groups(network, gauge)) == set(PLACES)
    frozen = Look("home", True, loader(0, kind="features"))
    assert set(frozen.profile(Gauge(nn.Identity(), late=True), tiny_network("features")).groups) == {"early"}


def test_nothing_is_said_of_few_images() -> None:
    found = watch(knowing(), loader(4, count=39), "today", 0.05)
    assert (found.adapt, found.known, found.p_value) == (None, None, None)
    assert found.reason == "too few images: 39 of them, and 40 are needed"
    assert watch(knowing(), loader(4, count=40), "today", 0.05).adapt is True


def test_nothing_is_said_beside_a_profile_without_groups() -> None:
    network = knowing()
    network.profile = replace(network.profile, groups={})  # type: ignore[type-var]
    found = watch(network, loader(4), "today", 0.05)
    assert found.adapt is None
    assert "cosda profile MODEL FOLDER" in found.reason
    assert found.unlike > 0.5  # which is known all the same


def test_a_model_without_a_profile_is_an_error_that_says_what_to_do() -> None:
    network = knowing()
    network.profile = None
    with pytest.raises(CosdaError, match=r"has no profile.*cosda profile MODEL FOLDER"):
        watch(network, loader(0), "today", 0.05)


def test_a_bank_knows_all_its_domains_and_their_mixture() -> None:
    bank = bank_of(knowing(), 4)
    assert watch(bank, loader(0, 300), "today", 0.05).domains == ("home",)
    away = watch(bank, loader(4, 300), "today", 0.05)
    assert (away.adapt, away.domains) == (False, ("away",))
    assert away.reason == "they look like away, which has an expert already"
    both = watch(bank, together(loader(0, 300, 100), loader(4, 300, 100)), "today", 0.05)
    assert (both.adapt, both.domains) == (False, ("home", "away"))
    assert both.shares == pytest.approx({"home": 0.5, "away": 0.5}, abs=0.05)
    assert "a mixture of home and away" in both.reason
    new = watch(bank, loader(9), "today", 0.05)
    assert (new.adapt, new.domains) == (True, ("away",))
    assert "home and away" in new.reason
    assert new.unlike > 0.9


def test_a_mixture_with_a_new_domain_is_new() -> None:
    bank = bank_of(knowing(), 4)
    found = watch(bank, together(loader(0, 300, 100), loader(9, 300, 100)), "today", 0.05)
    assert (found.adapt, found.known) == (True, False)
    assert 0.4 < found.unlike < 0.6


def test_images_that_may_be_of_a_domain_without_a_profile_are_not_called_new() -> None:
    bank = bank_of(knowing(), 4)
    bank.base.profile = None
    bank = DomainBank(bank.base, bank.experts)
    assert watch(bank, loader(4, 300), "today", 0.05).adapt is False
    found = watch(bank, loader(0), "today", 0.05)
    assert found.adapt is None
    assert found.reason.startswith("source has no profile")


def test_the_order_of_the_images_means_nothing_to_the_test() -> None:
    images = loader(0, 300)
    by_class = np.concatenate([images.positions[rest::3] for rest in range(3)])
    assert watch(knowing(), replace(images, positions=by_class), "today", 0.05).adapt is False


def test_the_network_stays_as_it_was() -> None:
    network = knowing()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    watch(network, loader(4), "today", 0.05)
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


def test_plain_values_are_plain() -> None:
    found = watch(knowing(), loader(4), "today", 0.05).as_json()
    assert found["images"] == "today"
    assert found["known"] is False
    assert found["count"] == 200
    assert found["alpha"] == 0.05
