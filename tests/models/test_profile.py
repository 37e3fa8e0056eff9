"""What is kept of a domain: averages that survive a file bit by bit, made without the image that they judge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from sklearn.covariance import ledoit_wolf
from torch import Tensor

from cosda.errors import CosdaError
from cosda.models.profile import (
    CONFIDENCES,
    FEWEST,
    FOLDS,
    GROUPS,
    QUANTILES,
    DomainProfile,
    crossfitted,
    make_profile,
    profile_of_norms,
)


def statistics(count: int = 60, width: int = 7, seed: int = 0) -> Tensor:
    """Of images whose channels go together, and have quite other sizes."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(count, width)) @ rng.normal(size=(width, width))
    return torch.from_numpy(mixed * np.logspace(-2, 2, width) + 5)


def told_profile(**more: Any) -> DomainProfile:
    probabilities = torch.rand(60, 4, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    return replace(make_profile("Büro 1", statistics()).told(probabilities), **{"temperature": 2.5, **more})


def same(left: DomainProfile, right: DomainProfile) -> bool:
    def equal(one: Any, other: Any) -> bool:
        if isinstance(one, Tensor):
            return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
        if isinstance(one, Mapping):
            return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
        return bool(one == other)

    return all(equal(getattr(left, field.name), getattr(right, field.name)) for field in fields(DomainProfile))


# --- Its file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "profile",
    [
        make_profile("plain", statistics()),
        make_profile("late", statistics(), late=True),
        told_profile(),
        profile_of_norms("source", [torch.rand(3), torch.rand(2)], [torch.rand(3), torch.rand(2)], torch.zeros(10)),
    ],
    ids=lambda profile: profile.name,
)
def test_a_profile_from_its_file_is_the_one_that_was_written(profile: DomainProfile) -> None:
    content = profile.to_bytes()
    again = DomainProfile.from_bytes(content, "here")
    assert same(again, profile)
    assert again.to_bytes() == content
    assert again.key == profile.key
    if profile.covariance is not None:
        images = statistics(9, seed=3)
        assert torch.equal(again.distance(images), profile.distance(images))
    assert again.limit == profile.limit


def test_equal_profiles_give_equal_bytes_and_others_do_not() -> None:
    assert told_profile().to_bytes() == told_profile().to_bytes()
    changed = [
        told_profile(name="other"),
        told_profile(late=True),
        told_profile(temperature=2.6),
        told_profile(images=61),
        told_profile(mean=statistics().mean(dim=0) + 1e-12),
        told_profile(classes=None),
    ]
    assert len({profile.key for profile in (told_profile(), *changed)}) == len(changed) + 1


def test_a_damaged_file_is_a_clear_error_wherever_it_was_cut() -> None:
    content = told_profile().to_bytes()
    for length in (0, 4, 8, 20, 100, len(content) // 2, len(content) - 1):
        with pytest.raises(CosdaError, match="photos/profile-1 is no domain profile"):
            DomainProfile.from_bytes(content[:length], "photos/profile-1")


@pytest.mark.parametrize(
    "facts", [{"format": 1}, {}, [], "text", {"format": 1, "name": "a", "images": 3, "temperature": None}]
)
def test_a_file_that_lacks_something_is_a_clear_error(facts: Any) -> None:
    content = safetensors.torch.save({"mean": torch.zeros(2)}, {"profile": json.dumps(facts)})
    with pytest.raises(CosdaError, match="here is no domain profile"):
        DomainProfile.from_bytes(content, "here")


@pytest.mark.parametrize("tensors", [{"mean": torch.zeros(3)}, {"distances": torch.zeros(5)}])
def test_a_file_without_its_tensors_is_a_clear_error(tensors: dict[str, Tensor]) -> None:
    facts = {"format": 1, "name": "a", "images": 30, "temperature": None, "late": False}
    content = safetensors.torch.save(tensors, {"profile": json.dumps(facts)})
    with pytest.raises(CosdaError, match="here is no domain profile"):
        DomainProfile.from_bytes(content, "here")


def test_a_covariance_that_does_not_fit_is_a_clear_error() -> None:
    facts = {"format": 1, "name": "a", "images": 30, "temperature": None, "late": False}
    tensors = {"mean": torch.zeros(3), "distances": torch.zeros(5), "covariance": torch.zeros(5)}
    content = safetensors.torch.save(tensors, {"profile": json.dumps(facts)})
    with pytest.raises(CosdaError, match="here is no domain profile"):
        DomainProfile.from_bytes(content, "here")


def test_a_file_of_a_later_cosda_says_so() -> None:
    content = safetensors.torch.save({"mean": torch.zeros(3)}, {"profile": json.dumps({"format": 2})})
    with pytest.raises(CosdaError, match=r"profile format 2.*update cosda"):
        DomainProfile.from_bytes(content, "here")


# --- What it holds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "least", "most"), [(60, 0.05, 0.5), (2000, 0.001, 0.05)])
def test_mean_and_covariance_are_those_of_ledoit_and_wolf_on_standardised_data(
    count: int, least: float, most: float
) -> None:
    """The more images there are, the less is shrunk."""
    given = statistics(count)
    profile = make_profile("one", given)
    assert torch.allclose(profile.mean, given.mean(dim=0))
    deviation = given.numpy().std(axis=0)
    wanted, shrinkage = ledoit_wolf((given.numpy() - given.numpy().mean(axis=0)) / deviation, assume_centered=True)
    assert least < shrinkage < most
    assert profile.covariance is not None
    np.testing.assert_allclose(profile.covariance.numpy(), wanted * np.outer(deviation, deviation), rtol=1e-5)


def test_a_channel_that_never_changes_tells_nothing_and_breaks_nothing() -> None:
    given = statistics()
    given[:, 3] = 0.25
    profile = make_profile("one", given)
    image = given[:1].clone()
    near = float(profile.distance(image))
    image[0, 3] += 1e-9  # what another processor may round to
    assert float(profile.distance(image)) == pytest.approx(near, rel=1e-3)
    constant = make_profile("all alike", torch.ones(FEWEST, 4))
    assert bool(constant.distance(torch.ones(1, 4)).isfinite().all())


def test_more_channels_than_images_is_no_trouble() -> None:
    profile = make_profile("few", statistics(FEWEST, 100))
    assert bool(profile.distances.isfinite().all())
    assert bool((profile.distances > 0).all())


def test_distances_are_mahalanobis_and_their_quantiles_are_crossfitted() -> None:
    given = statistics()
    profile = make_profile("one", given)
    assert profile.covariance is not None
    inverse = np.linalg.inv(profile.covariance.numpy())
    apart = (given - profile.mean).numpy()
    np.testing.assert_allclose(profile.distance(given).numpy(), [row @ inverse @ row for row in apart], rtol=1e-8)
    judged = []
    for number in range(len(given)):  # by all images but those that share its place among five
        others = given[[other for other in range(len(given)) if other % FOLDS != number % FOLDS]]
        judged.append(float(make_profile("others", others).distance(given[number : number + 1])))
    np.testing.assert_allclose(profile.distances.numpy(), np.quantile(judged, QUANTILES), rtol=1e-10)
    assert profile.limit == float(profile.distances[3])


def test_crossfitting_leaves_the_image_out() -> None:
    """Whatever an image is, the profile that judges it is the same; all others change."""
    given, other = statistics(23), statistics(23)
    other[7] += 100
    seen = torch.zeros(23, dtype=torch.long)
    for (fold, before), (_, after) in zip(crossfitted("one", given), crossfitted("one", other), strict=True):
        seen += fold
        assert before.images == 23 - int(fold.sum())
        assert same(before, after) == bool(fold[7])
    assert seen.tolist() == [1] * 23, "each image is judged once"


def test_what_a_network_said_is_counted() -> None:
    probabilities = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.02, 0.98, 0.0], [0.125, 0.0, 0.875]])
    profile = make_profile("one", statistics()).told(probabilities)
    assert profile.classes is not None
    assert profile.confidences is not None
    assert profile.classes.tolist() == [1, 1, 2]
    wanted = [0] * CONFIDENCES
    wanted[10] += 1
    wanted[19] += 2  # 1.0 and 0.98
    wanted[17] += 1  # 0.875
    assert profile.confidences.tolist() == wanted


def test_batch_norm_statistics_as_a_profile() -> None:
    within = torch.tensor([0.5, 1.0, 0.5, 4.0])  # of the means, then of the deviations
    profile = profile_of_norms("source", [torch.tensor([1.0, 2.0])], [torch.tensor([4.0, 9.0])], within)
    assert profile.mean.tolist() == pytest.approx([1, 2, 3**0.5, 2])
    assert (profile.images, profile.covariance, profile.limit) == (0, None, None)


# --- Privacy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, FEWEST - 1])
def test_too_few_images_are_refused(count: int) -> None:
    with pytest.raises(CosdaError, match=f"'tiny' has {count} images.* at least {FEWEST}"):
        make_profile("tiny", statistics(FEWEST)[:count])
    assert make_profile("enough", statistics(FEWEST)).images == FEWEST


def test_a_file_holds_averages_and_nothing_of_the_size_of_the_domain() -> None:
    """From 500 images on, files have the same size, field by field; none holds a row of the statistics."""
    files = [safetensors.torch.load(make_profile("one", statistics(count)).to_bytes()) for count in (60, 500, 1000)]
    shapes = [{name: tuple(value.shape) for name, value in tensors.items()} for tensors in files]
    averages = {"mean": (7,), "covariance": (28,), "distances": (len(QUANTILES),)}
    assert shapes[0] == {**averages, "groups.early": (3, 7)}
    assert shapes[1] == shapes[2] == {**averages, "groups.early": (GROUPS, 7)}
    for row in statistics(60):
        assert not torch.isin(row, files[0]["mean"]).any()
        assert not torch.isin(row.float(), files[0]["groups.early"]).any()
    names = safetensors.torch.load(told_profile().to_bytes()).keys()
    assert set(names) == {"mean", "covariance", "distances", "classes", "confidences", "groups.early"}


def test_a_profile_of_an_older_cosda_has_no_groups_and_keeps_its_bytes() -> None:
    old = replace(make_profile("one", statistics()), groups={})
    content = old.to_bytes()
    assert not [name for name in safetensors.torch.load(content) if name.startswith("groups")]
    again = DomainProfile.from_bytes(content, "here")
    assert again.groups == {}
    assert again.to_bytes() == content


def test_the_order_of_images_shows_in_no_average() -> None:
    given = statistics()
    one, other = make_profile("one", given), make_profile("one", given.flip(0))
    assert one.covariance is not None
    assert other.covariance is not None
    assert torch.allclose(one.mean, other.mean, rtol=1e-12)
    assert torch.allclose(one.covariance, other.covariance, rtol=1e-5)
