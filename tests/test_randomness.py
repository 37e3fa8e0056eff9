"""Streams depend on the seed and their keys alone."""

from __future__ import annotations

import torch

from cosda.randomness import derive, stream


def test_pinned_values():
    """Other values would make old runs impossible to repeat; a change must be meant."""
    assert derive(0, "order") == 5618756638689033999
    assert derive(0, 1, 2, "order") == 5873524412949988746


def test_every_key_matters():
    seeds = {derive(*keys) for keys in [(0,), (1,), (0, 1), (0, 1, 2), (0, 2, 1), (0, "a"), (0, 12), (1, 2)]}
    assert len(seeds) == 8


def test_seeds_fit_what_numpy_and_torch_take():
    values = [derive(seed, "x") for seed in range(200)]
    assert all(0 <= v < 2**63 for v in values)
    assert len(set(values)) == 200
    assert max(values) > 2**61


def test_streams_are_equal_for_equal_keys_and_independent_of_each_other():
    first = stream(3, "a")
    torch.rand(10, generator=stream(3, "b"))
    torch.manual_seed(0)
    assert torch.equal(torch.rand(5, generator=first), torch.rand(5, generator=stream(3, "a")))
    assert not torch.equal(torch.rand(5, generator=stream(3, "a")), torch.rand(5, generator=stream(3, "b")))


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    torch.rand(3, generator=stream(0, "anything"))
    assert torch.equal(torch.get_rng_state(), before)
