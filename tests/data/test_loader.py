"""Which image comes when, and the thread that fetches it."""

from __future__ import annotations

import threading
import time
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from cosda.data import loader as loader_module
from cosda.data.domain import Domain, Files
from cosda.data.loader import Loader, open_loader, prefetched
from cosda.preprocessing import FEATURE_VECTORS
from cosda.types import Batch
from tiny import CPU, SEEN, tiny_domain, tiny_loader
from waiting import wait_until


def numbered(count=20, batch_size=6, positions=None, **other):
    """Feature vectors that say which sample they are."""
    items = np.arange(count, dtype=np.float32)[:, None]
    return Loader(
        items, np.arange(count) if positions is None else positions, FEATURE_VECTORS, CPU, batch_size, **other
    )


def order(batches):
    return [int(i) for batch in batches for i in batch.index]


def prefetching():
    return [thread for thread in threading.enumerate() if thread.name == "cosda-prefetch"]


# --- Order ------------------------------------------------------------------------------------------------------------


def test_the_order_depends_on_seed_stage_and_epoch_alone():
    first = order(numbered().epoch(1, 2))
    torch.manual_seed(9)
    assert order(numbered().epoch(1, 2)) == first
    others = [
        order(numbered(seed=seed).epoch(stage, epoch)) for seed, stage, epoch in [(1, 1, 2), (0, 2, 2), (0, 1, 3)]
    ]
    assert len({tuple(o) for o in [first, *others]}) == 4


def test_neither_items_nor_batch_size_nor_views_change_the_order():
    first = order(numbered().epoch(1, 2))
    assert order(numbered(batch_size=5).epoch(1, 2)) == first
    images = Loader(tiny_domain(count=20).items, np.arange(20), SEEN, CPU, 6)
    assert order(images.epoch(1, 2, ("weak", "test"))) == first


def test_each_index_comes_once_an_epoch_in_random_order():
    got = order(numbered().epoch(0, 0))
    assert sorted(got) == list(range(20)) != got


def test_samples_belong_to_their_index_and_the_index_counts_positions():
    positions = np.array([3, 5, 8, 13, 19])
    loader = numbered(positions=positions, batch_size=2)
    assert len(loader) == 5
    for batch in [*loader.epoch(0, 0), *loader.sweep()]:
        assert batch.images[:, 0].tolist() == positions[batch.index.numpy()].tolist()
        assert batch.index.max() < 5


@pytest.mark.parametrize(
    ("count", "batch_size", "sizes"),
    [
        (20, 6, [6, 6, 6, 2]),
        (19, 6, [6, 6, 6]),  # a last batch of one has no statistics of its own
        (18, 6, [6, 6, 6]),
        (5, 6, [5]),
        (1, 6, [1]),  # a domain of one image is better than nothing
        (3, 1, [1, 1, 1]),
        (0, 6, []),
    ],
)
def test_sizes_of_batches(count, batch_size, sizes):
    loader = numbered(count, batch_size)
    assert [len(batch) for batch in loader.epoch(0, 0)] == sizes
    assert loader.steps == len(sizes)


@pytest.mark.parametrize(("limit", "images"), [(0, 20), (10, 10), (13, 12), (100, 20), (1, 1)])
def test_epoch_images_is_the_most_that_an_epoch_sees(limit, images):
    loader = numbered(epoch_images=limit)
    got = order(loader.epoch(0, 0))
    assert len(got) == len(set(got)) == images
    assert loader.steps == -(-images // 6)
    assert got == order(numbered().epoch(0, 0))[:images]
    if 1 < limit < 20:
        assert set(got) != set(order(loader.epoch(0, 1)))  # the next epoch sees others
    assert order(loader.sweep()) == list(range(20))


@pytest.mark.parametrize("views", [("weak",), ("weak", "strong", "strong"), ("test",)])
def test_batches_whose_views_are_made_together_are_those_made_alone(monkeypatch, views):
    loader, made = tiny_loader(batch_size=4), []
    sample = int(np.prod(loader.items.shape[1:]))
    for together in (1, 2 * 4 * sample, 1000 * sample):  # one batch, two, all
        monkeypatch.setattr(loader_module, "TOGETHER", together)
        made.append(list(loader.epoch(1, 2, views)))
    alone, *others = made
    assert len(alone) > 2
    for batches in others:
        for batch, single in zip(batches, alone, strict=True):
            assert torch.equal(batch.index, single.index)
            assert len(batch.views) == len(views)
            assert all(torch.equal(*both) for both in zip(batch.views, single.views, strict=True))


def test_a_sweep_is_in_order_and_leaves_nothing_out():
    batches = list(numbered(13).sweep())
    assert order(batches) == list(range(13))
    assert [len(batch) for batch in batches] == [6, 6, 1]


# --- Views ------------------------------------------------------------------------------------------------------------


def test_views_are_made_in_the_wanted_order_and_are_equal_for_equal_epochs():
    loader = Loader(tiny_domain(count=8).items, np.arange(8), SEEN, CPU, 4, seed=1)
    (first, _), (again, _), (later, _) = (list(loader.epoch(1, e, ("weak", "test", "weak"))) for e in (0, 0, 1))
    assert len(first.views) == 3
    assert first.images is first.views[0]
    assert all(torch.equal(a, b) for a, b in zip(first.views, again.views, strict=True))
    assert not torch.equal(first.views[0], first.views[2])
    assert not torch.equal(first.views[0], later.views[0])
    whole = torch.cat([batch.images for batch in loader.sweep()])
    assert torch.equal(first.views[1], whole[first.index])


def test_batches_of_an_epoch_are_augmented_differently():
    same = np.repeat(tiny_domain(count=1).items, 8, axis=0)
    one, two = Loader(same, np.arange(8), SEEN, CPU, 4).epoch(0, 0)
    assert not torch.equal(one.images, two.images)


def test_a_batch_has_no_labels():
    assert {field.name for field in fields(Batch)} == {"views", "index"}
    batch = next(numbered().epoch(0, 0))
    assert not hasattr(batch, "labels")
    assert not any("label" in field.name for field in fields(Loader))


def test_open_loader_takes_a_split_without_its_labels():
    domain = tiny_domain(count=30)
    for split, wanted in (("train", domain.train), ("test", domain.test)):
        loader = open_loader(domain, split, SEEN, CPU, 4, seed=3, epoch_images=5)
        assert loader.positions.tolist() == wanted.tolist()
        assert (loader.batch_size, loader.seed, loader.epoch_images) == (4, 3, 5)
    shuffled = open_loader(domain.with_labels_shuffled(), "train", SEEN, CPU, 4)
    bare = open_loader(domain.without_labels(), "train", SEEN, CPU, 4)
    for a, b in zip(shuffled.epoch(0, 0), bare.epoch(0, 0), strict=True):
        assert torch.equal(a.images, b.images)


def test_files_must_be_packed_first(tmp_path):
    domain = Domain("raw", Files(tmp_path, ("a.png",)), None, np.arange(1), np.arange(1))
    with pytest.raises(TypeError, match="raw are not decoded"):
        open_loader(domain, "train", SEEN, CPU, 4)


# --- The thread -------------------------------------------------------------------------------------------------------


def test_prefetching_changes_neither_items_nor_their_order():
    assert list(prefetched(range(50))) == list(range(50))
    assert list(prefetched([])) == []
    assert list(prefetched([None, False, 0])) == [None, False, 0]
    assert not prefetching()


def broken():
    yield 1
    yield 2
    raise OSError("unreadable")


def test_an_error_of_the_thread_is_raised_where_the_batches_are_read():
    got = []
    with pytest.raises(OSError, match="unreadable"):
        got.extend(prefetched(broken()))
    assert got == [1, 2]
    assert not prefetching()


def endless():
    number = 0
    while True:
        yield number
        number += 1


def test_the_thread_ends_when_the_reader_stops_early():
    for number in (source := prefetched(endless())):
        if number == 3:
            break
    assert len(prefetching()) == 1
    source.close()
    assert not prefetching()


def test_a_loader_that_is_dropped_half_way_leaves_no_thread(monkeypatch):
    monkeypatch.setattr(loader_module, "TOGETHER", 1)
    batches = numbered(1000, 2).epoch(0, 0)
    next(batches)
    assert len(prefetching()) == 1
    del batches
    assert not prefetching()


def test_the_thread_stays_only_a_few_items_ahead():
    drawn = []

    def counted():
        for number in range(100):
            drawn.append(number)
            yield number

    source = prefetched(counted(), depth=2)
    next(source)
    wait_until(lambda: len(drawn) == 4, "the thread that reads ahead")
    time.sleep(0.05)  # it would go on at once
    assert len(drawn) == 4  # one is read, two wait, one is in its hand
    source.close()


def test_a_broken_image_stops_the_epoch():
    class Broken:
        shape, dtype = (10, 3), np.dtype(np.float32)

        def __len__(self):
            return 10

        def __getitem__(self, index):
            raise OSError("disk gone")

    loader = replace(numbered(10), items=Broken())
    with pytest.raises(OSError, match="disk gone"):
        list(loader.epoch(0, 0))
    assert not prefetching()


def test_a_bank_that_is_built_anew_sees_other_boxes_in_each_epoch():
    loader = tiny_loader()

    def weak(epoch):
        loader.begin_epoch(epoch)
        return torch.cat([batch.images for batch in loader.sweep("weak")])

    first, second, again = weak(0), weak(1), weak(0)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
