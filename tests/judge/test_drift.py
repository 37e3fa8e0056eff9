"""The permutation test: exact under no drift, sharp under drift, and silent where it cannot tell."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from torch import Tensor

from cosda.judge import drift
from cosda.judge.drift import RIDGE, compare, corrected, enough, fewest, p_value
from cosda.models.profile import FEWEST, GROUPS, DomainProfile, group_means, make_profile


def groups(count: int, seed: int, shift: float = 0.0, width: int = 6) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) + shift


def by_hand(known: Tensor, new: Tensor) -> float:
    """The share of all ways to choose the new ones in which the heaps lie as far apart."""
    pooled = torch.cat([known, new]).double()
    pooled = (pooled - pooled.mean(0)) / pooled.std(0)
    scatter = pooled.T @ pooled
    ridge = RIDGE * torch.linalg.svdvals(pooled).square().mean()
    inverse = torch.linalg.inv(scatter + ridge * torch.eye(len(scatter)))

    def apart(chosen: tuple[int, ...]) -> float:
        rest = [place for place in range(len(pooled)) if place not in chosen]
        between = pooled[list(chosen)].mean(0) - pooled[rest].mean(0)
        return float(between @ inverse @ between)

    found = apart(tuple(range(len(known), len(pooled))))
    ways = [apart(chosen) for chosen in combinations(range(len(pooled)), len(new))]
    return sum(way >= found * (1 - 1e-9) for way in ways) / len(ways)


@pytest.mark.parametrize("seed", range(4))
def test_the_p_value_is_that_of_all_deals(seed: int) -> None:
    known, new = groups(6, seed), groups(3, 10 + seed, shift=0.4 * seed)
    assert p_value(known, new) == pytest.approx(by_hand(known, new), abs=0.02)


def test_false_alarms_are_as_rare_as_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "DEALS", 499)
    rng = torch.Generator().manual_seed(0)
    # Neither normal nor of one scale, and more numbers than groups.
    drawn = torch.randn(200, 15, 40, generator=rng).exp() * torch.logspace(-3, 3, 40)
    found = torch.tensor([p_value(each[:10], each[10:]) for each in drawn])
    assert 0.01 <= float((found <= 0.05).double().mean()) <= 0.09
    assert 0.4 <= float(found.mean()) <= 0.6


def test_a_shift_is_found_wherever_it_lies() -> None:
    known = groups(20, 0, width=10)
    for column in (0, 9):
        moved = groups(5, 1, width=10)
        moved[:, column] += 4
        assert p_value(known, moved) < 0.01
    assert p_value(known, groups(5, 1, width=10)) > 0.05


def test_scale_means_nothing_and_what_never_changes_tells_nothing() -> None:
    known, new = groups(8, 0), groups(4, 1, shift=1.0)
    assert p_value(known * 1000, new * 1000) == p_value(known, new)
    dead = [
        torch.cat([part, torch.full((len(part), 1), 7.0 + 1e-6 * number)], dim=1)
        for number, part in enumerate((known, new))
    ]
    assert p_value(*dead) == pytest.approx(p_value(known, new), abs=0.02)
    same = torch.ones(5, 3)
    assert p_value(same, same) == 1


def test_the_same_images_always_have_the_same_p_value() -> None:
    assert p_value(groups(9, 2), groups(4, 3)) == p_value(groups(9, 2), groups(4, 3))


# --- Groups -----------------------------------------------------------------------------------------------------------


def test_a_group_is_the_mean_of_twenty_images_and_no_image_is_in_two() -> None:
    values = torch.eye(3 * FEWEST + 7)
    made = group_means(values)
    assert made.shape == (3, len(values))
    assert sorted(made.unique().tolist()) == [0, pytest.approx(1 / FEWEST)]
    assert ((made > 0).sum(dim=1) == FEWEST).all()
    assert ((made > 0).sum(dim=0) <= 1).all()


def test_images_that_lie_side_by_side_come_into_different_groups() -> None:
    made = group_means(torch.arange(10 * FEWEST).double()[:, None])
    assert float(made.std()) < 40  # in order of their place it would be 57


def test_there_are_never_more_groups_than_are_needed_and_none_of_few_images() -> None:
    assert len(group_means(torch.zeros(FEWEST * (GROUPS + 3), 2))) == GROUPS
    assert group_means(torch.zeros(FEWEST - 1, 2)).shape == (0, 2)


# --- Places -----------------------------------------------------------------------------------------------------------


def profile(**places: int) -> DomainProfile:
    made = make_profile("one", torch.randn(40, 3, generator=torch.Generator().manual_seed(0)))
    return replace(made, groups={place: groups(count, 5) for place, count in places.items()})


def seen(count: int) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(1)
    return {place: torch.randn(count, 6, generator=rng) for place in ("early", "features", "predictions")}


def test_places_without_enough_groups_are_left_out() -> None:
    known = profile(early=20, features=2)
    assert compare(known, seen(100), 0.05).keys() == {"early"}  # 2 and 5 groups can be dealt in 21 ways alone
    assert compare(known, seen(500), 0.05).keys() == {"early", "features"}
    assert compare(known, seen(39), 0.05) == {}
    assert compare(profile(), seen(100), 0.05) == {}


@pytest.mark.parametrize(("known", "new"), [(25, 2), (5, 5), (2, 11), (1, 25), (25, 1), (3, 3)])
def test_there_are_enough_groups_where_the_smallest_p_value_is_small_enough(known: int, new: int) -> None:
    assert enough(known, new, 0.05) == (3 / math.comb(known + new, known) <= 0.05)


def test_how_many_images_are_needed() -> None:
    assert fewest(profile(early=25), 0.05) == 40
    assert fewest(profile(early=3), 0.05) == 120
    assert fewest(profile(early=1), 0.05) is None
    assert fewest(profile(), 0.05) is None


def test_the_correction_counts_the_places() -> None:
    assert corrected({"early": 0.01, "features": 0.5}) == 0.02
    assert corrected({"early": 0.6, "features": 0.7}) == 1
