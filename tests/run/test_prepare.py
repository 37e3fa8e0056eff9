"""Features of a frozen encoder are computed once; data and networks have names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from cosda.config.request import fingerprint
from cosda.data.cache import content_key
from cosda.data.domain import Domain, Files
from cosda.data.views import make_view
from cosda.errors import CosdaError
from cosda.models.artifact import weights_key
from cosda.models.bn_folding import TRIAL
from cosda.run.features import featurise
from cosda.run.machine import Machine
from cosda.run.prepare import readable
from cosda.watch import Watcher
from tiny import CPU, SEEN, tiny_domain


class Counting(nn.Module):
    """An encoder that counts the images it has seen (not those of a trial), and is different in train mode."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.batches = []  # copies of the encoder share it

    @property
    def seen(self):
        return sum(self.batches)

    def forward(self, images):
        if len(images) > TRIAL:
            self.batches.append(len(images))
        return self.layers(images)


class Listening(Watcher):
    def __init__(self):
        self.told, self.left_out = [], []

    def begin(self, task, steps, unit="steps"):
        self.told.append((task, steps, unit))

    def note(self, text):
        self.told.append(text)

    def skipped(self, domain, images):
        self.left_out.append((domain, images))


def features_of(domain, encoder, tmp_path, preprocessing=SEEN, watcher=None):
    return featurise(domain, content_key(domain), encoder, preprocessing, CPU, tmp_path, watcher or Watcher())


# --- featurise --------------------------------------------------------------------------------------------------------


def test_features_are_the_encoders_of_every_image_in_order(tmp_path):
    domain, encoder = tiny_domain(count=150), Counting()  # more than a batch
    encoder.layers[2].eval()
    got = features_of(domain, encoder, tmp_path)
    assert (got.kind, got.width, got.name) == ("features", 4, domain.name)
    assert np.array_equal(got.labels, domain.labels)
    assert np.array_equal(got.test, domain.test)
    assert [m.training for m in encoder.layers] == [True, True, False, True]
    views = make_view("test", torch.from_numpy(domain.items), SEEN, torch.Generator())
    with torch.no_grad():
        wanted = encoder.eval()(views).numpy()
    assert got.items.dtype == np.float32
    np.testing.assert_allclose(np.asarray(got.items), wanted, atol=1e-5)


def test_the_second_time_the_encoder_is_not_asked(tmp_path):
    domain, encoder, watcher = tiny_domain(count=30), Counting(), Listening()
    first = features_of(domain, encoder, tmp_path, watcher=watcher)
    second = features_of(domain, encoder, tmp_path, watcher=watcher)
    assert encoder.seen == 30
    assert np.array_equal(first.items, second.items)
    assert watcher.told == [("features of one", 30, "images")]
    # Labels and splits are no part of what is stored.
    assert features_of(domain.without_labels(), encoder, tmp_path).labels is None
    assert encoder.seen == 30


def nudged(encoder):
    with torch.no_grad():
        encoder.layers[0].bias[0] += 1e-6


def other_statistics(encoder):
    encoder.layers[1].running_mean[0] += 1


@pytest.mark.parametrize("change", [nudged, other_statistics])
def test_other_weights_or_statistics_are_other_features(tmp_path, change):
    domain, encoder = tiny_domain(count=30), Counting()
    before = np.asarray(features_of(domain, encoder, tmp_path).items)
    change(encoder)
    after = features_of(domain, encoder, tmp_path)
    assert encoder.seen == 60
    assert not np.array_equal(before, after.items)


def test_other_images_or_preprocessing_are_other_features(tmp_path):
    encoder = Counting()
    features_of(tiny_domain(count=30), encoder, tmp_path)
    features_of(tiny_domain(count=30, seed=1), encoder, tmp_path)
    features_of(tiny_domain(count=30), encoder, tmp_path, replace(SEEN, size=12))
    features_of(tiny_domain(count=30), encoder, tmp_path, replace(SEEN, mean=(0.4, 0.5, 0.5)))
    assert encoder.seen == 120


def test_an_encoder_that_fails_leaves_nothing_that_looks_like_features(tmp_path):
    class Failing(Counting):
        def forward(self, images):
            if not self.batches and len(images) > TRIAL:
                self.batches.append(len(images))
                raise RuntimeError("out of memory")
            return super().forward(images)

    encoder = Failing()
    with pytest.raises(RuntimeError, match="out of memory"):
        features_of(tiny_domain(), encoder, tmp_path)
    assert not list(tmp_path.rglob("*.npy"))
    assert features_of(tiny_domain(), encoder, tmp_path).items.shape == (30, 4)


# --- Names ------------------------------------------------------------------------------------------------------------


def test_weights_have_a_name_of_their_bits():
    assert weights_key(Counting()) == weights_key(Counting())
    assert weights_key(Counting()) != weights_key(Counting(1))
    laid_out = Counting().to(memory_format=torch.channels_last)
    assert weights_key(laid_out) == weights_key(Counting())  # the order in memory is not part of a network


def changed(**values):
    return replace(tiny_domain(), **values)


def other_pixel():
    domain = tiny_domain()
    domain.items[7, 3, 3, 1] ^= 1
    return domain


@pytest.mark.parametrize(
    "other",
    [
        changed(name="other"),
        changed(labels=tiny_domain().labels[::-1].copy()),
        changed(labels=None),
        changed(train=np.arange(5)),
        changed(test=np.arange(5)),
        other_pixel(),
    ],
    ids=["name", "labels", "no labels", "train", "test", "pixel"],
)
def test_a_fingerprint_names_images_labels_and_splits(other):
    assert fingerprint([tiny_domain()]) == fingerprint([tiny_domain()])
    assert fingerprint([other]) != fingerprint([tiny_domain()])


def test_a_fingerprint_knows_the_order_of_the_chain():
    one, two = tiny_domain("one"), tiny_domain("two", seed=1)
    assert len({fingerprint([one, two]), fingerprint([two, one]), fingerprint([one])}) == 3


# --- readable ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def on_disk(tmp_path):
    """Four images, the third of them not an image."""
    for number in range(4):
        pixels = np.full((20, 30, 3), 60 * number, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    (tmp_path / "2.png").write_bytes(b"no image")
    order = np.arange(4, dtype=np.int64)
    return Domain("disk", Files(tmp_path, tuple(f"{n}.png" for n in range(4))), np.array([0, 1, 1, 3]), order, order)


@pytest.mark.parametrize("pack", [True, False])
def test_files_become_images_with_a_margin_and_what_is_skipped_is_told(tmp_path, on_disk, pack):
    watcher = Listening()
    packed = readable(on_disk, 14, Machine(cache=tmp_path / "cache", pack=pack), watcher)
    assert packed.domain.items.shape == (3, 16, 16, 3)
    assert packed.domain.labels.tolist() == [0, 1, 3]
    assert packed.domain.items[np.array([2])].max() == 180
    [(domain, [(name, reason)])] = watcher.left_out
    assert (domain, name, bool(reason)) == ("disk", "2.png", True)


def test_strict_stops_at_an_unreadable_image(tmp_path, on_disk):
    with pytest.raises(CosdaError, match=r"2\.png"):
        readable(on_disk, 14, Machine(cache=tmp_path / "cache", strict=True), Watcher())


def test_arrays_are_readable_already():
    domain = tiny_domain()
    assert readable(domain, 99, Machine(), Watcher()).domain is domain


# --- Machine ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["nonsense", "cuda:77", "meta"])
def test_a_device_that_is_not_there_is_an_error_with_a_way_out(name):
    machine, words = Machine(device=name), f"device '{name}' cannot be used: .*--device cpu"
    with pytest.raises(CosdaError, match=words), machine.open():
        pass


@pytest.mark.parametrize("threads", [0, -1, 1025, 10**30])
def test_an_impossible_number_of_threads_is_an_error(threads):
    with pytest.raises(CosdaError, match="it must be from 1 to 1,024"):
        Machine(threads=threads)


def test_auto_finds_a_device_and_the_program_around_is_left_as_it_was():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    with Machine(threads=threads + 1).open() as device:
        assert device.type in ("cpu", "cuda")
        assert torch.get_num_threads() == threads + 1
        torch.manual_seed(99)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_paths_may_be_texts(tmp_path):
    assert Machine(cache=str(tmp_path)) == Machine(cache=tmp_path)
