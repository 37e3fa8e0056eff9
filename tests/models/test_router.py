"""Which domain an image comes from: statistics against hooks, the discriminant against a slow formula."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosda.models.encoders.resnet import small_resnet
from cosda.models.profile import LEFT, QUANTILES, DomainProfile, make_profile, profile_of_norms
from cosda.models.router import CHANNELS, FEATURES, TEMPERATURES, Gauge, Router, new_profile

WIDE = 40  # channels, more than are looked at


class Counted(nn.Conv2d):
    """A convolution that counts its passes."""

    passes = 0

    def forward(self, images: Tensor) -> Tensor:
        self.passes += 1
        return super().forward(images)


def convolutional(depth: int = 8, width: int = WIDE) -> nn.Sequential:
    """So many blocks of convolution, BatchNorm and ReLU; running statistics that say something."""
    torch.manual_seed(0)
    blocks: list[nn.Module] = []
    for number in range(depth):
        norm = nn.BatchNorm2d(width)
        norm.running_mean = torch.randn(width)
        norm.running_var = torch.rand(width) + 0.5
        blocks += [Counted(width if number else 3, width, 3, padding=1), norm, nn.ReLU()]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()


class Attention(nn.Module):
    """As in a vision transformer: tokens (B, N, d), each block normalises twice."""

    def __init__(self, width: int, fixed: int | None = None) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.grow = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        near = self.first(tokens)
        tokens = tokens + (near @ near.transpose(1, 2)).softmax(dim=2) @ self.mix(near)
        return tokens + self.grow(self.second(tokens)).relu()


class TinyViT(nn.Module):
    """Patches, positions for images of one size alone, attention."""

    def __init__(self, width: int = 20, side: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.positions = nn.Parameter(torch.randn(1, (side // 4) ** 2, width))
        self.blocks = nn.Sequential(*[Attention(width) for _ in range(3)])
        self.norm = nn.LayerNorm(width)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.norm(self.blocks(tokens)).mean(dim=1)


class ChannelsFirst(nn.LayerNorm):
    """A LayerNorm over the channels of maps (B, c, H, W), as timm has it."""

    def forward(self, maps: Tensor) -> Tensor:
        return super().forward(maps.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class TinyConvNeXt(nn.Module):
    """A stem with channels first, blocks that normalise with channels last."""

    def __init__(self, width: int = 20) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4, stride=4), ChannelsFirst(width))
        self.depthwise = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1, groups=width) for _ in range(3)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.grow = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])

    def forward(self, images: Tensor) -> Tensor:
        maps = self.stem(images)
        for depthwise, norm, grow in zip(self.depthwise, self.norms, self.grow, strict=True):
            maps = maps + grow(norm(depthwise(maps).permute(0, 2, 3, 1))).relu().permute(0, 3, 1, 2)
        return maps.mean(dim=(2, 3))


class OwnNorm(nn.LayerNorm):
    """A normalisation layer that does its own arithmetic, which nobody sees from outside."""

    def forward(self, vectors: Tensor) -> Tensor:
        return (vectors - vectors.mean(dim=-1, keepdim=True)) / vectors.std(dim=-1, keepdim=True) * self.weight


def images(count: int = 5, side: int = 16, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, side, side, generator=rng) + torch.randn(count, 3, 1, 1, generator=rng)


def spread(count: int, most: int) -> list[int]:
    """Evenly from the first to the last."""
    return list(range(count)) if count <= most else [k * (count - 1) // (most - 1) for k in range(most)]


def slow(sites: list[Tensor]) -> Tensor:
    """Means and deviations of the channels (B, c, …) of each site, image by image and channel by channel."""
    rows = []
    for image in range(len(sites[0])):
        row: list[float] = []
        for maps in sites:
            chosen = [np.asarray(maps[image, channel]).ravel() for channel in spread(maps.shape[1], CHANNELS)]
            row += [float(values.mean()) for values in chosen] + [float(values.std()) for values in chosen]
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


def inputs_of(encoder: nn.Module, layers: list[nn.Module], given: Tensor) -> list[Tensor]:
    """What goes into some layers, seen by hooks."""
    found: dict[int, Tensor] = {}
    hooks = [layer.register_forward_pre_hook(lambda one, args: found.update({id(one): args[0]})) for layer in layers]
    with torch.no_grad():
        encoder(given)
    for hook in hooks:
        hook.remove()
    return [found[id(layer)].double() for layer in layers]


def norms_of(encoder: nn.Module, kind: type[nn.Module]) -> list[nn.Module]:
    return [layer for layer in encoder.modules() if isinstance(layer, kind)]


# --- Statistics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "looked_at"), [(1, 1), (4, 1), (8, 2), (16, 4), (40, 8)])
def test_statistics_are_those_at_the_inputs_of_the_first_quarter_of_the_norms(depth: int, looked_at: int) -> None:
    encoder = convolutional(depth, width=WIDE if depth < 16 else 5)
    first = norms_of(encoder, nn.BatchNorm2d)[:looked_at]
    got = Gauge(encoder)(images())
    torch.testing.assert_close(got, slow(inputs_of(encoder, first, images())), rtol=1e-5, atol=1e-6)
    assert got.dtype == torch.float64


@pytest.mark.parametrize(("side", "halved"), [(63, False), (64, True), (80, True)])
def test_large_images_are_halved_first(side: int, halved: bool) -> None:
    encoder = convolutional()
    given = images(2, side)
    seen = given.unfold(2, 2, 2).unfold(3, 2, 2).mean(dim=(4, 5)) if halved else given
    wanted = slow(inputs_of(encoder, norms_of(encoder, nn.BatchNorm2d)[:2], seen))
    torch.testing.assert_close(Gauge(encoder)(given), wanted, rtol=1e-5, atol=1e-6)


def test_images_are_halved_by_their_shorter_side() -> None:
    encoder, wide = convolutional(), images(2, 80)[:, :, :40]
    for given in (wide, wide.transpose(2, 3)):
        wanted = slow(inputs_of(encoder, norms_of(encoder, nn.BatchNorm2d)[:2], given))
        torch.testing.assert_close(Gauge(encoder)(given), wanted, rtol=1e-5, atol=1e-6)


def test_a_network_that_needs_images_of_one_size_is_not_given_halves() -> None:
    """Linear layers on all pixels, with BatchNorm: halved images would not fit."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 6), nn.BatchNorm1d(6), nn.ReLU()).eval()
    with torch.no_grad():
        wanted = encoder[1](encoder[0](images(4, 64)))
    got = Gauge(encoder)(images(4, 64))
    torch.testing.assert_close(got[:, :6], wanted.double(), rtol=1e-5, atol=1e-5)


def test_vectors_between_layers_have_no_deviation_and_batch_norm_remembers_nothing_of_one_image() -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 6), nn.BatchNorm1d(6), nn.ReLU()).eval()
    assert Gauge(encoder)(images(4)).shape == (4, 6)
    assert Gauge(encoder).remembered("source", images(1), torch.zeros(99)) is None


@pytest.mark.parametrize("make", [convolutional, small_resnet, TinyViT, TinyConvNeXt, nn.Flatten])
def test_an_image_has_the_same_statistics_alone_and_in_any_batch(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    gauge = Gauge(make().eval())
    given = images(9)
    together = gauge(given)
    torch.testing.assert_close(torch.cat([gauge(image[None]) for image in given]), together, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gauge(given.flip(0)).flip(0), together, rtol=1e-5, atol=1e-6)
    assert gauge(given[:0]).shape == (0, together.shape[1])


def test_statistics_of_other_images_are_others() -> None:
    gauge = Gauge(convolutional())
    assert not torch.allclose(gauge(images(seed=0)), gauge(images(seed=1)))


@pytest.mark.parametrize("side", [16, 32])
def test_tokens_of_a_transformer(side: int) -> None:
    """The first three norms: before, within and after the first block. Also where there are as many tokens as
    channels."""
    torch.manual_seed(0)
    encoder = TinyViT(width=16, side=side).eval()
    first = norms_of(encoder, nn.LayerNorm)[:3]
    channels_second = [tokens.transpose(1, 2) for tokens in inputs_of(encoder, first, images(side=side))]
    torch.testing.assert_close(Gauge(encoder)(images(side=side)), slow(channels_second), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("side", [16, 80])
def test_channels_last_and_first_of_a_convnext(side: int) -> None:
    """At 80 pixels the maps are as wide as they are deep."""
    torch.manual_seed(0)
    encoder = TinyConvNeXt(width=20).eval()
    stem, first, second = norms_of(encoder, nn.LayerNorm)[:3]
    inputs = inputs_of(encoder, [stem, first, second], images(side=side))
    channels_second = [inputs[0], *(maps.permute(0, 3, 1, 2) for maps in inputs[1:])]
    torch.testing.assert_close(Gauge(encoder)(images(side=side)), slow(channels_second), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm", [nn.GroupNorm(2, 6), nn.LayerNorm((6, 16, 16))], ids=["group", "whole maps"])
def test_norms_of_maps_with_channels_first(norm: nn.Module) -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), norm, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    wanted = slow(inputs_of(encoder, [norm], images()))
    torch.testing.assert_close(Gauge(encoder)(images()), wanted, rtol=1e-5, atol=1e-6)


def test_without_norms_the_statistics_are_the_features() -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 700), nn.ReLU())
    gauge = Gauge(encoder)
    with torch.no_grad():
        wanted = encoder(images())[:, spread(700, FEATURES)].double()
    assert gauge.late
    assert torch.equal(gauge(images()), wanted)
    assert gauge.remembered("source", images(1), torch.zeros(99)) is None


def test_norms_that_nobody_can_see_are_no_trouble() -> None:
    """Then the features have to do, as for a network without norms."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 8), OwnNorm(8), nn.ReLU())
    with torch.no_grad():
        wanted = encoder(images()).double()
    assert torch.equal(Gauge(encoder)(images()), wanted)


def test_a_frozen_encoder_is_looked_at_where_it_ends() -> None:
    encoder = convolutional()
    gauge = Gauge(encoder, late=True)
    with torch.no_grad():
        features = encoder(images())
    assert torch.equal(gauge(images()), features.double())
    assert torch.equal(gauge.of_features(features), gauge(images()))


def test_only_the_beginning_of_the_encoder_is_run() -> None:
    encoder = convolutional(12)
    Gauge(encoder)(images())
    assert [layer.passes for layer in norms_of(encoder, Counted)] == [1] * 3 + [0] * 9  # type: ignore[attr-defined]


def test_looking_leaves_the_encoder_as_it_was() -> None:
    encoder = convolutional()
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    Gauge(encoder)(images())
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())
    assert not any(module._forward_pre_hooks for module in encoder.modules())


def test_several_threads_look_through_one_network() -> None:
    gauge = Gauge(convolutional())
    given = [images(3, seed=seed) for seed in range(8)]
    wanted = [gauge(batch) for batch in given]
    meet, found = threading.Barrier(8), {}

    def look(number: int) -> None:
        meet.wait()
        for _ in range(5):
            found[number] = gauge(given[number])

    threads = [threading.Thread(target=look, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[number], wanted[number]) for number in range(8))


def test_what_batch_norm_remembers_stands_in_for_a_profile() -> None:
    encoder, within = convolutional(), torch.linspace(0, 0.4, 4 * CHANNELS, dtype=torch.float64)
    profile = Gauge(encoder).remembered("photos", images(1), within)
    assert profile is not None
    wanted: list[float] = []
    for norm in norms_of(encoder, nn.BatchNorm2d)[:2]:
        chosen, done = spread(WIDE, CHANNELS), len(wanted)
        wanted += [float(norm.running_mean[channel]) for channel in chosen]  # type: ignore[index]
        for place, channel in enumerate(chosen):
            variance = float(norm.running_var[channel])  # type: ignore[index]
            between = float(within[done + place] + within[done + CHANNELS + place])
            wanted.append(max(variance - between, LEFT * variance) ** 0.5)
    assert profile.mean.tolist() == pytest.approx(wanted, rel=1e-6)
    assert (profile.name, profile.covariance, profile.images, profile.full) == ("photos", None, 0, True)
    assert Gauge(encoder, late=True).remembered("photos", images(1), within) is None
    assert Gauge(TinyViT().eval()).remembered("photos", images(1), within) is None


def test_what_batch_norm_remembers_lies_where_the_images_lie() -> None:
    """Also for images that differ much in brightness and contrast, which is no deviation within an image."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, momentum=None), nn.Flatten())
    seen = torch.randn(400, 3, 12, 12) * (1 + 0.5 * torch.rand(400, 1, 1, 1)) + torch.randn(400, 3, 1, 1)
    layers(seen)
    layers.eval()
    statistics = Gauge(layers)(seen)
    profile = Gauge(layers).remembered("photos", seen[:1], statistics.var(dim=0))
    assert profile is not None
    assert float(((profile.mean - statistics.mean(dim=0)) / statistics.std(dim=0)).abs().max()) < 0.1


def test_layers_come_in_the_order_in_which_they_are_used() -> None:
    """Not in that in which the code names them."""

    class Swapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.later, self.first = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
            self.first.running_mean = torch.ones(3)

        def forward(self, maps: Tensor) -> Tensor:
            return self.later(self.first(maps)).mean(dim=(2, 3))

    profile = Gauge(Swapped().eval()).remembered("one", images(1), torch.zeros(6))
    assert profile is not None
    assert profile.mean[:3].tolist() == [1, 1, 1]


# --- The discriminant -------------------------------------------------------------------------------------------------


def cloud(place: float, count: int = 60, seed: int = 0, width: int = 5) -> Tensor:
    """Statistics of a domain around a place."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(count, width)) @ np.diag(np.linspace(0.5, 2, width)) + place)


def three() -> tuple[DomainProfile, ...]:
    return tuple(make_profile(name, cloud(place, seed=place)) for place, name in enumerate(("one", "two", "three")))


@pytest.mark.parametrize("temperature", [None, 1.0, 3.0])
def test_the_posterior_is_that_of_gaussians_with_one_covariance(temperature: float | None) -> None:
    profiles = tuple(replace(profile, temperature=2.0) for profile in three())
    given = cloud(1, 7, seed=9)
    shared = np.mean([profile.covariance.numpy() for profile in profiles if profile.covariance is not None], axis=0)
    inverse = np.linalg.inv(shared)
    for row, got in zip(given.numpy(), Router(profiles).posterior(given, temperature), strict=True):
        apart = [row - profile.mean.numpy() for profile in profiles]
        heights = np.exp([-(one @ inverse @ one) / 2 / (temperature or 2.0) for one in apart])
        np.testing.assert_allclose(got.numpy(), heights / heights.sum(), rtol=1e-8)


def test_a_single_domain_is_certain_and_a_row_does_not_see_the_others() -> None:
    profiles = three()
    given = cloud(1, 7, seed=9)
    assert Router(profiles[:1]).posterior(given).tolist() == [[1.0]] * 7
    whole = Router(profiles).posterior(given)
    torch.testing.assert_close(torch.cat([Router(profiles).posterior(row[None]) for row in given]), whole)
    assert Router(profiles).posterior(given[:0]).shape == (0, 3)


def test_the_temperature_of_a_router_is_the_geometric_mean() -> None:
    first, second, third = three()
    assert Router((first, second)).temperature == 1.0
    mixed = Router((first, replace(second, temperature=2.0), replace(third, temperature=8.0)))
    assert mixed.temperature == pytest.approx(4.0)


def test_unknown_is_what_lies_beyond_all_limits() -> None:
    profiles, far = three(), cloud(40, 4)
    router = Router(profiles)
    assert router.unknown(far).tolist() == [True] * 4
    own = [router.unknown(cloud(place, 500, seed=100 + place)).double().mean() for place in range(3)]
    assert max(own) < 0.1
    # exactly at the limit of one domain, and beyond those of the others
    first = profiles[0]
    assert first.limit is not None
    direction = -torch.ones(1, 5, dtype=torch.float64)
    reach = (first.limit / float(first.distance(first.mean + direction))) ** 0.5
    edge = [bool(router.unknown(first.mean + direction * reach * by)) for by in (0.999, 1.001)]
    assert edge == [False, True]
    assert profiles[0].limit == float(profiles[0].distances[QUANTILES.index(0.99)])


def test_what_is_nearest_to_a_domain_without_a_limit_is_not_unknown() -> None:
    first, second, _ = three()
    nothing = torch.zeros(6)
    remembered = profile_of_norms("source", [torch.zeros(2), torch.zeros(1)], [torch.ones(2), torch.ones(1)], nothing)
    remembered = replace(remembered, mean=torch.full((5,), -40.0, dtype=torch.float64))
    router = Router((remembered, first, second))
    assert router.unknown(cloud(-38, 4)).tolist() == [False] * 4
    assert router.unknown(cloud(40, 4)).tolist() == [True] * 4
    assert router.posterior(cloud(-38, 4)).argmax(dim=1).tolist() == [0] * 4


def test_the_temperature_of_a_new_domain_is_the_one_at_which_its_images_find_it_best() -> None:
    others, given = three()[:2], cloud(3, 50, seed=7)
    given[::9] -= 3  # some look like images of another domain
    profile = new_profile("new", given, others, late=False)
    likelihoods = np.zeros(len(TEMPERATURES))
    for number in range(50):
        without = make_profile("new", given[[other for other in range(50) if other % 5 != number % 5]])
        for place, temperature in enumerate(TEMPERATURES):
            row = Router((*others, without)).posterior(given[number : number + 1], temperature)
            likelihoods[place] += float(row[0, -1].log())
    assert profile.temperature == TEMPERATURES[int(likelihoods.argmax())]
    assert 1 < profile.temperature < 100, "a bound shows nothing"
    assert profile.images == 50
    assert new_profile("first", given, (), late=True).temperature is None


def test_far_domains_need_no_flattening() -> None:
    assert new_profile("far", cloud(30, 50), three(), late=False).temperature == pytest.approx(1.0)


def test_features_of_a_network_are_spread_over_its_width() -> None:
    features = torch.arange(1000.0)[None].expand(2, -1)
    got = Gauge(nn.Identity()).of_features(features)
    assert got[0].tolist() == spread(1000, FEATURES)
    assert F.mse_loss(got[0], got[1]) == 0
