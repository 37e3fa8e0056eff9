"""CoTTA's augmentation: in image space, from the given stream alone, and nothing at all where the ranges are."""

from __future__ import annotations

import colorsys
import math
from dataclasses import replace

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
