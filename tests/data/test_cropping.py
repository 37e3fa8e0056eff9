"""All ways of cutting and resizing make the same images."""

import pytest
import torch

from cosda.data import cropping
from cosda.data.cropping import _by_grid, crop
from tiny import noise, smooth

BOXES = [[0, 0, 60, 48], [3, 5, 50, 40], [10, 0, 50, 48], [0, 8, 45, 40], [5, 5, 32, 32], [20, 3, 40, 45]]


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def draw_boxes(count, height, width):
    sizes = 1 + (torch.rand(count, 2, generator=rng(1)) * torch.tensor([height, width])).long()
    corners = (torch.rand(count, 2, generator=rng(2)) * (torch.tensor([height, width]) - sizes + 1)).long()
    return torch.cat([corners, sizes], 1)


@pytest.fixture(params=["products", "calls"])
def way(request, monkeypatch):
    monkeypatch.setattr(cropping, "SMALL", 1000 if request.param == "products" else 0)


def test_the_box_of_each_image_is_cut(way):
    items = noise(3, 20, 30)
    boxes = torch.tensor([[0, 0, 8, 8], [12, 22, 8, 8], [3, 5, 8, 8]])
    got = crop(items, boxes, 8)
    for image, item, (top, left, tall, wide) in zip(got, items, boxes.tolist(), strict=True):
        assert torch.equal(image.byte(), item[top : top + tall, left : left + wide].permute(2, 0, 1))


@pytest.mark.parametrize(
    ("height", "width", "size"), [(37, 37, 32), (28, 44, 28), (16, 16, 40), (64, 50, 24), (9, 5, 1)]
)
def test_matrix_products_give_torchs_pixels_exactly(monkeypatch, height, width, size):
    items, boxes = noise(200, height, width), draw_boxes(200, height, width)
    mirrored = torch.rand(200, generator=rng(3)) < 0.5
    made = {}
    for way, small in (("products", 1000), ("calls", 0)):
        monkeypatch.setattr(cropping, "SMALL", small)
        made[way] = crop(items, boxes, size, mirrored)
    assert made["calls"].dtype == torch.uint8
    assert made["products"].is_floating_point()
    for images in made.values():
        assert images.permute(0, 2, 3, 1).is_contiguous()  # as the network wants them
    assert torch.equal(made["products"], made["calls"].float())


def test_small_images_take_the_fast_way():
    boxes = draw_boxes(4, 37, 37)
    assert crop(noise(4, 37, 37), boxes, 32).is_floating_point()
    assert crop(noise(4, 146, 146), draw_boxes(4, 146, 146), 128).dtype == torch.uint8
    assert crop(noise(4, 37, 37), boxes[:1].expand(4, 4), 32).dtype == torch.uint8


def test_one_box_for_all_is_the_box_of_each(way):
    items, boxes = noise(6, 30, 40), torch.tensor([[2, 3, 25, 31]] * 5 + [[0, 0, 9, 9]])
    apart = crop(items, boxes, 16)[:5]  # the last box is another one, so that each is cut by itself
    assert torch.equal(crop(items[:5], boxes[:5], 16).float(), apart.float())


@pytest.mark.parametrize("chosen", [[True, False, True, False, False, True], [True] * 6, [False] * 6])
def test_only_the_chosen_images_are_mirrored(way, chosen):
    items, boxes, mirrored = smooth(6, 60, 48), torch.tensor(BOXES), torch.tensor(chosen)
    plain = crop(items, boxes, 32)
    expected = torch.where(mirrored[:, None, None, None], plain.flip(3), plain)
    assert torch.equal(crop(items, boxes, 32, mirrored), expected)
    same_box = boxes[:1].expand(6, 4)
    plain = crop(items, same_box, 32).float()
    expected = torch.where(mirrored[:, None, None, None], plain.flip(3), plain)
    assert torch.equal(crop(items, same_box, 32, mirrored).float(), expected)


@pytest.mark.parametrize("size", [32, 48, 90])
def test_a_grid_sees_the_same(size):
    items, boxes = smooth(6, 60, 48), torch.tensor(BOXES)
    mirrored = torch.tensor([True, False, False, True, True, False])
    on_cpu, on_device = crop(items, boxes, size, mirrored), _by_grid(items, boxes, size, mirrored)
    assert on_device.shape == on_cpu.shape
    difference = (on_cpu.float() - on_device).abs()
    assert difference.max() < 6
    assert difference.mean() < 1
