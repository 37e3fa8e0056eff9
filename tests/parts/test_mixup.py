"""Shares, partners and the mixed batch."""

from __future__ import annotations

import pytest
import torch

from cosda.parts.mixup import Mixing, draw_mixing

CPU = torch.device("cpu")


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def shares(beta, fold, count=4000):
    generator = rng(1)
    return torch.tensor([draw_mixing(2, beta, fold, generator, CPU).share for _ in range(count)], dtype=torch.float64)


@pytest.mark.parametrize("beta", [0.1, 1.0, 2.0, 50.0])
def test_shares_lie_between_0_and_1_and_folded_ones_above_a_half(beta):
    free, folded = shares(beta, False, 300), shares(beta, True, 300)
    assert 0 <= free.min() < 0.5 < free.max() <= 1
    assert 0.5 <= folded.min() <= folded.max() <= 1


def within_four_errors(values, wanted):
    return abs(float(values.mean()) - wanted) < 4 * float(values.std()) / len(values) ** 0.5


def test_the_mean_of_folded_beta_2_2_is_eleven_sixteenths():
    assert within_four_errors(shares(2.0, True), 11 / 16)


def test_mean_and_variance_of_beta_2_2():
    values = shares(2.0, False)
    assert within_four_errors(values, 1 / 2)
    assert within_four_errors((values - 0.5) ** 2, 1 / 20)  # a²/((2a)²(2a+1)) for a = 2


@pytest.mark.parametrize("fold", [False, True])
def test_beta_0_mixes_nothing_and_gives_the_same_tensor(fold):
    images, mixing = torch.rand(5, 3, 2, 2), draw_mixing(5, 0.0, fold, rng(), CPU)
    assert mixing.share == 1
    assert mixing.images(images) is images


def test_partners_are_a_permutation():
    partner = draw_mixing(50, 2.0, False, rng(), CPU).partner
    assert partner.dtype == torch.int64
    assert sorted(partner.tolist()) == list(range(50)) != partner.tolist()


def test_images_are_mixed_with_their_partners():
    images = torch.tensor([[1.0], [10.0], [100.0]])
    mixed = Mixing(0.75, torch.tensor([1, 2, 0])).images(images)
    torch.testing.assert_close(mixed, torch.tensor([[3.25], [32.5], [75.25]]))
    assert images.tolist() == [[1], [10], [100]]


def test_a_share_of_0_gives_the_partners():
    images = torch.tensor([[1.0], [10.0], [100.0]])
    assert Mixing(0.0, torch.tensor([2, 0, 1])).images(images).tolist() == [[100], [1], [10]]


def test_the_generator_decides_and_the_global_one_is_left_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, other = (draw_mixing(20, 2.0, True, rng(seed), CPU) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert first.share == second.share != other.share
    assert torch.equal(first.partner, second.partner)
    assert not torch.equal(first.partner, other.partner)


def test_one_generator_gives_a_new_share_for_each_batch():
    generator = rng()
    assert draw_mixing(4, 2.0, False, generator, CPU).share != draw_mixing(4, 2.0, False, generator, CPU).share
