"""Boxes, resizing, normalisation and the random parts of views."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from cosda.data.views import Draw, _crop_by_grid, _normalise, _test_boxes, _weak_boxes, crop, make_view
from cosda.preprocessing import FEATURE_VECTORS, Preprocessing
from tiny import noise, smooth

RAW = {"mean": (0.0, 0.0, 0.0), "std": (1 / 255, 1 / 255, 1 / 255)}  # normalised pixels are the pixels


def preprocess(size=32, profile="cosda", flip=False, **other):
    return Preprocessing(size=size, profile=profile, flip=flip, **{**RAW, **other})


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def weak_boxes(items, settings):
    return _weak_boxes(items, settings, [Draw(rng(), len(items))])


SIZES = [(32, 32), (33, 47), (7, 5), (1, 1), (100, 20)]


@pytest.mark.parametrize("profile", ["cosda", "shot"])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_boxes_lie_within_the_image(profile, height, width):
    items = torch.empty(500, height, width, 3, dtype=torch.uint8)
    for boxes in (weak_boxes(items, preprocess(profile=profile)), _test_boxes(items, preprocess(profile=profile))):
        top, left, tall, wide = boxes.unbind(1)
        assert boxes.shape == (500, 4)
        assert min(top.min(), left.min()) >= 0
        assert min(tall.min(), wide.min()) >= 1
        assert (top + tall).max() <= height
        assert (left + wide).max() <= width


def test_weak_boxes_have_the_area_and_the_shape_that_the_profile_says():
    items = torch.empty(4000, 200, 200, 3, dtype=torch.uint8)
    top, left, tall, wide = weak_boxes(items, preprocess()).double().unbind(1)
    free = (tall < 200) & (wide < 200)  # a side that would stick out is cut to the image's
    area = (tall * wide / 200**2)[free]
    assert 0.74 < area.min() < 0.76
    assert area.max() <= 1
    assert 0.74 < (wide / tall).min() < 0.78
    assert 1.28 < (wide / tall).max() < 1.35
    assert (tall * wide / 200**2).min() > 0.64  # aspect 3:4 at the full area, cut
    assert abs(float((wide > tall).double().mean()) - 0.5) < 0.05
    room = (200 - wide)[free]
    assert abs(float((left[free] / room.clamp(min=1)).mean()) - 0.5) < 0.05  # anywhere, edges included
    assert (left == 0).any()
    assert (left[free] + wide[free] == 200).any()
    assert not torch.equal(top, left)


def test_shot_boxes_are_seven_eighths_anywhere_and_in_the_centre():
    items = torch.empty(2000, 256, 256, 3, dtype=torch.uint8)
    boxes = weak_boxes(items, preprocess(profile="shot"))
    assert boxes[:, 2:].unique().tolist() == [224]
    assert (int(boxes[:, :2].min()), int(boxes[:, :2].max())) == (0, 32)
    assert _test_boxes(items, preprocess(profile="shot"))[0].tolist() == [16, 16, 224, 224]
    assert _test_boxes(items, preprocess())[0].tolist() == [0, 0, 256, 256]


@pytest.mark.parametrize(("height", "width"), [(32, 32), (40, 24), (16, 50), (7, 9), (1, 1)])
def test_the_test_view_is_the_whole_image_at_the_networks_size(height, width):
    items = smooth(2, height, width)
    seen = make_view("test", items, preprocess(20), rng())
    assert (seen.shape, seen.dtype) == ((2, 3, 20, 20), torch.float32)
    wanted = torch.nn.functional.interpolate(
        items.permute(0, 3, 1, 2).float(), size=(20, 20), mode="bilinear", antialias=True
    )
    torch.testing.assert_close(seen, wanted, atol=1.0, rtol=0)


def test_a_image_of_the_right_size_is_not_touched():
    items = noise()
    assert torch.equal(make_view("test", items, preprocess(), rng()), items.permute(0, 3, 1, 2).float())


def test_the_shot_test_view_is_the_centre():
    items = noise(height=64, width=64)
    seen = make_view("test", items, preprocess(56, "shot"), rng())
    assert torch.equal(seen, items[:, 4:60, 4:60].permute(0, 3, 1, 2).float())


def test_the_test_view_draws_nothing():
    generator = rng()
    before = generator.get_state()
    make_view("test", noise(), preprocess(flip=True), generator)
    assert torch.equal(generator.get_state(), before)


def test_normalisation_is_exact():
    items = torch.arange(256, dtype=torch.uint8).view(1, 16, 16, 1).expand(2, 16, 16, 3)
    real = Preprocessing(size=16, flip=False)
    seen = make_view("test", items, real, rng())
    pixels = items.permute(0, 3, 1, 2).double() / 255
    mean, std = (torch.tensor(v, dtype=torch.float64).view(3, 1, 1) for v in (real.mean, real.std))
    torch.testing.assert_close(seen.double(), (pixels - mean) / std, rtol=0, atol=1e-6)


def test_normalisation_gives_the_same_bits_however_the_colours_lie():
    together = noise(5, 20, 30).permute(0, 3, 1, 2)  # as resizing leaves them
    apart = together.contiguous().float()  # and strong views
    each = preprocess(mean=(0.4, 0.5, 0.6), std=(0.1, 0.2, 0.3))
    made = [_normalise(images, each) for images in (together, apart)]
    assert torch.equal(*made)
    for images in made:
        assert images.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(apart, together.float())  # the given ones are as they were


def test_the_images_stay_as_they_were():
    items = noise()
    before = items.clone()
    for view in ("weak", "strong", "test"):
        make_view(view, items, preprocess(flip=True), rng())
    assert torch.equal(items, before)


def flipped_share(flip):
    """An image that is dark on the left, at a size at which shot's box decides nothing."""
    ramp = torch.linspace(0, 255, 64).round().to(torch.uint8).view(1, 1, 64, 1).expand(400, 64, 64, 3)
    seen = make_view("weak", ramp, preprocess(56, "shot", flip), rng())
    return float((seen[:, 0, 0, 0] > seen[:, 0, 0, -1]).float().mean())


def test_half_of_the_images_are_mirrored_only_if_allowed():
    assert flipped_share(False) == 0
    assert 0.4 < flipped_share(True) < 0.6


@pytest.mark.parametrize("view", ["weak", "strong"])
def test_random_views_follow_their_generator_and_leave_all_global_ones_alone(view):
    items, settings = noise(8), preprocess(flip=True)
    torch.manual_seed(1)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    first = make_view(view, items, settings, rng(5))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]  # noqa: NPY002
    torch.manual_seed(2)
    random.seed(3)
    assert torch.equal(make_view(view, items, settings, rng(5)), first)
    assert not torch.equal(make_view(view, items, settings, rng(6)), first)


def test_one_generator_gives_different_views_one_after_another():
    generator, items = rng(), noise(8)
    weak, again = (make_view("weak", items, preprocess(), generator) for _ in range(2))
    assert not torch.equal(weak, again)


def test_strong_views_differ_from_weak_ones_and_stay_within_the_range_of_pixels():
    items, differing = smooth(4, 32, 32), 0
    for seed in range(12):
        weak, strong = (make_view(view, items, preprocess(), rng(seed)) for view in ("weak", "strong"))
        assert strong.shape == weak.shape
        assert strong.min() >= 0
        assert strong.max() <= 255.001
        differing += not torch.allclose(weak, strong, atol=1)
    assert differing >= 6


@pytest.mark.parametrize("view", ["weak", "strong", "test"])
@pytest.mark.parametrize(("height", "width"), [(33, 47), (9, 8), (64, 16)])
def test_odd_sizes_and_a_batch_of_one(view, height, width):
    for count in (1, 3):
        seen = make_view(view, noise(count, height, width), preprocess(24, flip=True), rng())
        assert (seen.shape, seen.dtype) == ((count, 3, 24, 24), torch.float32)
        assert seen.isfinite().all()


def test_a_weak_view_shows_the_whole_box_and_no_more():
    """Every weak view of a ramp is a ramp again, and covers between 7/10 and all of it."""
    ramp = torch.linspace(0, 255, 100).round().to(torch.uint8).view(1, 1, 100, 1).expand(50, 100, 100, 3)
    seen = make_view("weak", ramp, preprocess(50), rng())
    assert (seen[..., 1:] >= seen[..., :-1]).all()
    covered = (seen[:, 0, 0, -1] - seen[:, 0, 0, 0]) / 255
    assert 0.7 < covered.min() < 0.85
    assert 0.97 < covered.max() <= 1


@pytest.mark.parametrize("view", ["weak", "strong", "test"])
def test_features_pass_as_they_are(view):
    features = torch.rand(5, 12)
    assert make_view(view, features, FEATURE_VECTORS, rng()) is features


def test_an_unknown_view_is_refused():
    with pytest.raises(ValueError, match="unknown view 'mild'"):
        make_view("mild", noise(), preprocess(), rng())


# --- Cutting and resizing ---------------------------------------------------------------------------------------------

BOXES = [[0, 0, 60, 48], [3, 5, 50, 40], [10, 0, 50, 48], [0, 8, 45, 40], [5, 5, 32, 32], [20, 3, 40, 45]]


def draw_boxes(count, height, width):
    sizes = 1 + (torch.rand(count, 2, generator=rng(1)) * torch.tensor([height, width])).long()
    corners = (torch.rand(count, 2, generator=rng(2)) * (torch.tensor([height, width]) - sizes + 1)).long()
    return torch.cat([corners, sizes], 1)


def test_the_box_of_each_image_is_cut():
    items = noise(3, 20, 30)
    boxes = torch.tensor([[0, 0, 8, 8], [12, 22, 8, 8], [3, 5, 8, 8]])
    got = crop(items, boxes, 8)
    for image, item, (top, left, tall, wide) in zip(got, items, boxes.tolist(), strict=True):
        assert torch.equal(image, item[top : top + tall, left : left + wide].permute(2, 0, 1))


@pytest.mark.parametrize(
    ("height", "width", "size"), [(37, 37, 32), (28, 44, 28), (16, 16, 40), (64, 50, 24), (9, 5, 1)]
)
def test_boxes_are_resized_as_torch_does_image_by_image(height, width, size):
    items, boxes = noise(200, height, width), draw_boxes(200, height, width)
    got = crop(items, boxes, size)
    assert got.dtype == torch.uint8
    assert got.permute(0, 2, 3, 1).is_contiguous()  # as the network wants them
    for image, item, (top, left, tall, wide) in zip(got, items, boxes.tolist(), strict=True):
        cut = item[top : top + tall, left : left + wide].permute(2, 0, 1)[None]
        wanted = torch.nn.functional.interpolate(cut, size=(size, size), mode="bilinear", antialias=True)
        assert torch.equal(image, wanted[0])


def test_one_box_for_all_is_the_box_of_each():
    items, boxes = noise(6, 30, 40), torch.tensor([[2, 3, 25, 31]] * 5 + [[0, 0, 9, 9]])
    apart = crop(items, boxes, 16)[:5]  # the last box is another one, so that each is cut by itself
    assert torch.equal(crop(items[:5], boxes[:5], 16), apart)


@pytest.mark.parametrize("chosen", [[True, False, True, False, False, True], [True] * 6, [False] * 6])
def test_only_the_chosen_images_are_mirrored(chosen):
    items, boxes, mirrored = smooth(6, 60, 48), torch.tensor(BOXES), torch.tensor(chosen)
    plain = crop(items, boxes, 32)
    expected = torch.where(mirrored[:, None, None, None], plain.flip(3), plain)
    assert torch.equal(crop(items, boxes, 32, mirrored), expected)
    same_box = boxes[:1].expand(6, 4)
    plain = crop(items, same_box, 32)
    expected = torch.where(mirrored[:, None, None, None], plain.flip(3), plain)
    assert torch.equal(crop(items, same_box, 32, mirrored), expected)


@pytest.mark.parametrize("size", [32, 48, 90])
def test_a_grid_sees_the_same(size):
    items, boxes = smooth(6, 60, 48), torch.tensor(BOXES)
    mirrored = torch.tensor([True, False, False, True, True, False])
    on_cpu, on_device = crop(items, boxes, size, mirrored), _crop_by_grid(items, boxes, size, mirrored)
    assert on_device.shape == on_cpu.shape
    difference = (on_cpu.float() - on_device).abs()
    assert difference.max() < 6
    assert difference.mean() < 1
