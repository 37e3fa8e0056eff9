"""CoTTA's augmentation: in image space, from the given stream alone, and nothing at all where the ranges are."""

from __future__ import annotations

import colorsys
import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from cosda.parts.augment import COLOURS, Augmentation, _warp
from cosda.preprocessing import IMAGENET, Preprocessing

NOTHING = Augmentation(
    brightness=(1, 1), contrast=(1, 1), saturation=(1, 1), hue=(0, 0), gamma=(1, 1),
    degrees=(0, 0), translation=0, scale=(1, 1), blur=(0.001, 0.001), noise=0,
)  # fmt: skip
UPRIGHT = Preprocessing(size=16, flip=False)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int = 4, side: int = 16) -> torch.Tensor:
    return torch.rand(count, 3, side, side, generator=rng(7))


def normalised(images: torch.Tensor) -> torch.Tensor:
    return (images - torch.tensor(IMAGENET.mean).view(3, 1, 1)) / torch.tensor(IMAGENET.std).view(3, 1, 1)


@pytest.mark.parametrize("per_image", [False, True])
def test_ranges_without_width_give_back_the_image(per_image: bool) -> None:
    x = normalised(images())
    got = replace(NOTHING, per_image=per_image)(x, UPRIGHT, rng())
    torch.testing.assert_close(got, x, atol=2e-5, rtol=0)


@pytest.mark.parametrize("per_image", [False, True])
def test_images_stay_images(per_image: bool) -> None:
    x, augment = images(), Augmentation(per_image=per_image)
    for seed in range(20):
        got = augment.on_images(x, True, rng(seed))
        assert got.shape == x.shape
        assert bool(torch.isfinite(got).all())
        assert got.min() >= 0
        assert got.max() <= 1
        assert (got - x).abs().mean() > 1e-3


def test_what_is_darker_than_the_mean_survives() -> None:
    """The trap: on normalised tensors gamma clips all below the mean, and a dark image becomes a flat one."""
    dark = images() * torch.tensor([0.3, 0.3, 0.3]).view(3, 1, 1)  # all below ImageNet's mean
    assert normalised(dark).max() < 0
    gamma_alone = replace(NOTHING, gamma=(0.7, 1.3))
    got = gamma_alone(normalised(dark), UPRIGHT, rng())
    assert got.std() > 0.5 * normalised(dark).std()
    back = got * torch.tensor(IMAGENET.std).view(3, 1, 1) + torch.tensor(IMAGENET.mean).view(3, 1, 1)
    ratio = back.clamp(min=1e-6).log() / dark.clamp(min=1e-6).log()
    assert ratio[dark > 0.05].std() < 1e-2, "one exponent for all pixels"


def test_the_stream_alone_decides_and_the_global_generator_is_left_alone() -> None:
    x, augment = normalised(images()), Augmentation()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = augment(x, IMAGENET, rng(3))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(first, augment(x, IMAGENET, rng(3)))
    assert not torch.equal(first, augment(x, IMAGENET, rng(4)))


def test_a_batch_draws_once_unless_each_image_draws_its_own() -> None:
    x = images(1).expand(6, -1, -1, -1)
    together = replace(Augmentation(), noise=0).on_images(x, True, rng())
    apart = replace(Augmentation(), noise=0, per_image=True).on_images(x, True, rng())
    torch.testing.assert_close(together, together[:1].expand_as(together))
    assert all(not torch.allclose(apart[0], other, atol=1e-3) for other in apart[1:])


def test_flips_only_where_left_and_right_do_not_matter() -> None:
    x = images()
    seen = set()
    for seed in range(16):
        torch.testing.assert_close(NOTHING.on_images(x, False, rng(seed)), x, atol=1e-5, rtol=0)
        got = NOTHING.on_images(x, True, rng(seed))
        seen.add("kept" if torch.allclose(got, x, atol=1e-5) else "flipped")
        assert torch.allclose(got, x, atol=1e-5) or torch.allclose(got, x.flip(3), atol=1e-5)
    assert seen == {"kept", "flipped"}


# CoTTA's own: brightness, contrast, saturation, hue (of the colour circle) and gamma.
RANGES = {
    "brightness": (0.6, 1.4),
    "contrast": (0.7, 1.3),
    "saturation": (0.5, 1.5),
    "hue": (-0.06, 0.06),
    "gamma": (0.7, 1.3),
}


def drawn(monkeypatch: pytest.MonkeyPatch, augment: Augmentation, seed: int, count: int) -> dict[str, torch.Tensor]:
    """The values by which an augmentation changes each colour, in the order of the changes."""
    values: dict[str, torch.Tensor] = {}

    def note(name: str, x: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        values[name] = value.flatten()
        return x

    for name in COLOURS:
        monkeypatch.setitem(COLOURS, name, partial(note, name))
    augment.on_images(images(count, 4), False, rng(seed))
    return values


def test_colours_are_drawn_evenly_from_the_whole_of_their_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    found = drawn(monkeypatch, Augmentation(per_image=True), 0, 1000)
    assert found.keys() == RANGES.keys()
    for name, (low, high) in RANGES.items():
        assert evenly(found[name], low, high), name
    together = drawn(monkeypatch, Augmentation(), 0, 1000)
    assert {len(value) for value in together.values()} == {1}


def test_colours_change_in_random_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the five is sometimes the first and sometimes the last; the order is the stream's."""
    orders = [tuple(drawn(monkeypatch, Augmentation(), seed, 1)) for seed in range(60)]
    assert {len(order) for order in orders} == {5}
    for place in range(5):
        assert {order[place] for order in orders} == set(RANGES)
    assert len(set(orders)) > 40
    assert orders[0] == tuple(drawn(monkeypatch, Augmentation(), 0, 1))


def test_one_change_after_the_other() -> None:
    """Darker and then squared, or squared and then darker: a pixel of ½ becomes 1/16 or 1/8, and nothing else."""
    augment = replace(NOTHING, brightness=(0.5, 0.5), gamma=(2, 2))
    grey = torch.full((1, 3, 8, 8), 0.5)
    seen = {round(augment.on_images(grey, False, rng(seed)).mean().item(), 4) for seed in range(20)}
    assert seen == {0.0625, 0.125}


def evenly(values: torch.Tensor, low: float, high: float) -> bool:
    """Whether numbers fill a range, as a thousand draws do."""
    places = (values - low) / (high - low)
    return 0 <= places.min() < 0.02 and 0.98 < places.max() <= 1 and abs(places.mean() - 0.5) < 0.03


def test_maps_and_blurs_are_drawn_evenly_from_the_whole_of_their_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """±15°, an eighth of the side, 0.9 to 1.1 times as large, and a blur of at most half a pixel."""
    seen: dict[str, torch.Tensor] = {}

    def warp(x: torch.Tensor, angle: torch.Tensor, move: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        seen.update(angle=angle, right=move[:, 0], down=move[:, 1], scale=scale)
        return torch.nn.functional.pad(x, (2,) * 4)

    def blur(x: torch.Tensor, size: tuple[int, int], sigma: torch.Tensor) -> torch.Tensor:
        assert size == (5, 5)
        assert torch.equal(sigma[:, 0], sigma[:, 1])
        seen["blur"] = sigma[:, 0]
        return x

    monkeypatch.setattr("cosda.parts.augment._warp", warp)
    monkeypatch.setattr("kornia.filters.gaussian_blur2d", blur)
    Augmentation(per_image=True).on_images(images(1000, 4), False, rng(0))
    tilt = math.radians(15)
    wanted = {"angle": (-tilt, tilt), "right": (-1 / 8, 1 / 8), "down": (-1 / 8, 1 / 8), "scale": (0.9, 1.1)}
    for name, (low, high) in {**wanted, "blur": (0.001, 0.5)}.items():
        assert evenly(seen[name], low, high), name
    assert not torch.equal(seen["right"], seen["down"])


def test_noise_has_the_deviation_that_is_asked_for() -> None:
    grey = torch.full((4, 3, 16, 16), 0.5)
    for deviation in (0.005, 0.05):
        change = replace(NOTHING, noise=deviation).on_images(grey, False, rng(0)) - grey
        assert change.std().item() == pytest.approx(deviation, rel=0.05)
        assert abs(change.mean().item()) < 0.1 * deviation
    assert Augmentation().noise == 0.005


def test_colours_pixel_by_pixel() -> None:
    x, value = images(1, 4), 1.3
    values = x[0].permute(1, 2, 0).reshape(-1, 3).tolist()
    grey = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b in values]
    mean = sum(grey) / len(grey)

    def cut(number: float) -> float:
        return min(1.0, max(0.0, number))

    def turned(pixel: list[float]) -> tuple[float, float, float]:
        hue, saturation, brightness = colorsys.rgb_to_hsv(*pixel)
        return colorsys.hsv_to_rgb((hue + 0.06) % 1, saturation, brightness)

    slow = {
        "brightness": [[cut(v * value) for v in pixel] for pixel in values],
        "contrast": [[cut(mean + value * (v - mean)) for v in pixel] for pixel in values],
        "saturation": [[cut(g + value * (v - g)) for v in p] for p, g in zip(values, grey, strict=True)],
        "gamma": [[v**value for v in pixel] for pixel in values],
        "hue": [turned(pixel) for pixel in values],
    }
    assert slow.keys() == COLOURS.keys()
    for name, wanted in slow.items():
        amount = torch.tensor(0.06 if name == "hue" else value).view(1, 1, 1, 1)
        got = COLOURS[name](x, amount)[0].permute(1, 2, 0).reshape(-1, 3)
        torch.testing.assert_close(got, torch.tensor(wanted), atol=1e-5, rtol=0)


def test_a_warp_is_the_affine_map_of_an_edge_padded_image() -> None:
    """Pad by half, map, cut out the centre (with a margin of 2 for the blur): the original, pixel by pixel."""
    side, angle, move, scale = 16, math.radians(11), (0.1, -0.07), 0.93
    x = images(1, side)
    got = _warp(x, torch.tensor([angle]), torch.tensor([move]), torch.tensor([scale]))[0, 0]
    half = side // 2
    padded = torch.nn.functional.pad(x, (half,) * 4, mode="replicate")[0, 0]
    centre = (2 * side - 1) / 2
    for row in range(side + 4):
        for column in range(side + 4):
            # a pixel of the result in the padded image, from its centre, moved and turned back
            right = column - 2 + half - centre - move[0] * side
            down = row - 2 + half - centre - move[1] * side
            from_x = (math.cos(angle) * right + math.sin(angle) * down) / scale + centre
            from_y = (-math.sin(angle) * right + math.cos(angle) * down) / scale + centre
            left, top = math.floor(from_x), math.floor(from_y)
            if not (0 <= left < 2 * side - 1 and 0 <= top < 2 * side - 1):
                continue
            a, b = from_x - left, from_y - top
            wanted = (1 - b) * ((1 - a) * padded[top, left] + a * padded[top, left + 1])
            wanted = wanted + b * ((1 - a) * padded[top + 1, left] + a * padded[top + 1, left + 1])
            assert got[row, column].item() == pytest.approx(wanted.item(), abs=1e-4)
