"""Numbers that are seen without labels, on networks and images small enough to know them."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from cosda.judge.evidence import moved
from cosda.judge.looking import look
from cosda.models.experts import DomainBank, Expert
from cosda.models.profile import make_profile
from tiny import tiny_loader, tiny_network


def test_the_way_of_the_weights_is_in_units_of_their_length() -> None:
    began = tiny_network()
    now = copy.deepcopy(began)
    with torch.no_grad():
        for parameter in now.parameters():
            parameter *= 1.1
    assert moved(began, now, "two", 1) == pytest.approx(math.log10(0.1), abs=1e-3)
    assert moved(began, now, "two", 4) == pytest.approx(math.log10(0.05), abs=1e-3), "each step half as far"
    assert moved(began, copy.deepcopy(began), "two", 1) == -6, "nowhere"


def test_of_a_bank_the_way_of_the_domains_expert_from_the_nearest_network() -> None:
    base, far = tiny_network().eval(), tiny_network(seed=1).eval()
    profile = make_profile("two", torch.randn(30, 4, generator=torch.Generator().manual_seed(0)))
    bank = DomainBank(base, [Expert.make(far, base, 8, profile)])
    assert moved(base, bank, "two", 1) > -1
    assert moved(bank, bank, "two", 1) == -6, "the incoming bank has that very expert"


@pytest.mark.parametrize("kind", ["batch_norm", "features"])
def test_noise_is_the_same_for_both_models_and_changes_what_they_say(kind: str) -> None:
    network, loader = tiny_network(kind).eval(), tiny_loader(kind)
    first, again = look(network, loader), look(copy.deepcopy(network), loader)
    assert torch.equal(first.noisy, again.noisy)
    assert first.noisy.shape == first.logits.shape
    assert not torch.allclose(first.noisy, first.logits)
