"""The embedded benchmark: what it holds, and that it is the same everywhere."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cosda.data import digits

TOOL = Path(__file__).parents[2] / "tools" / "make_digits.py"
RENDERED = ["print", "colour", "outline"]
ALL = [*RENDERED, "hand"]


@pytest.fixture(scope="module")
def benchmark():
    return digits.load()


def test_the_benchmark_says_what_it_is(benchmark):
    assert [domain.name for domain in benchmark] == ALL
    assert benchmark.classes == tuple("0123456789")
    assert (benchmark.protocol, benchmark.headline) == ("inductive", "top1")


@pytest.mark.parametrize("name", ALL)
def test_images_labels_and_splits(benchmark, name):
    domain = benchmark[name]
    count = 1797 if name == "hand" else 1500
    assert (domain.items.shape, domain.items.dtype) == ((count, 32, 32, 3), np.uint8)
    assert (domain.labels.shape, domain.labels.dtype) == ((count,), np.int64)
    assert set(domain.labels.tolist()) == set(range(10))
    assert len(domain.train) == 1200
    assert sorted([*domain.train, *domain.test]) == list(range(count))  # disjoint, and nothing is left out


@pytest.mark.parametrize("name", RENDERED)
def test_rendered_classes_are_balanced_in_both_splits(benchmark, name):
    domain = benchmark[name]
    assert np.bincount(domain.labels[domain.train]).tolist() == [120] * 10
    assert np.bincount(domain.labels[domain.test]).tolist() == [30] * 10


def test_every_class_is_in_both_splits_of_handwriting(benchmark):
    hand = benchmark["hand"]
    for split in (hand.train, hand.test):
        assert np.bincount(hand.labels[split], minlength=10).min() > 30


@pytest.mark.parametrize("name", ALL)
def test_no_image_is_in_training_and_test(benchmark, name):
    domain = benchmark[name]
    train, test = ({domain.items[i].tobytes() for i in split} for split in (domain.train, domain.test))
    assert not train & test


def test_domains_look_as_they_are_described(benchmark):
    pixels = {name: benchmark[name].items.astype(float) for name in ALL}
    spread = {name: float(np.ptp(p, axis=3).mean()) for name, p in pixels.items()}
    assert spread["print"] == spread["outline"] == spread["hand"] == 0  # grey
    assert spread["colour"] > 10
    assert pixels["hand"][:, :4].max() == pixels["hand"][:, :, -4:].max() == 0  # a frame
    paper = pixels["print"][:, 0, 0, 0]
    assert 0.4 < (paper > 128).mean() < 0.6  # dark on light or light on dark
    assert np.median(pixels["outline"], axis=(1, 2)).max() < 128  # light on dark


def test_images_of_one_digit_differ(benchmark):
    for name in ALL:
        images = benchmark[name].items[benchmark[name].labels == 7]
        assert len({p.tobytes() for p in images}) == len(images)


HASH = """
import hashlib
from cosda.data import digits

total = hashlib.sha256()
for domain in digits.load():
    for array in (domain.items, domain.labels, domain.train, domain.test):
        total.update(f"{array.dtype} {array.shape}".encode() + array.tobytes())
print(total.hexdigest())
"""


def test_the_pixels_are_those_of_the_first_release_without_any_library_that_draws():
    """All recorded runs are of these pixels. The libraries that drew them are not even there."""
    blocked = "import sys; sys.modules.update(dict.fromkeys(['matplotlib', 'PIL', 'sklearn']))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{blocked}\n{HASH}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "23c2cc2376d0cb38fb6a17557e37faa5ac9adc38b974340cb1589761c7bba140"


def test_the_tool_draws_the_stored_shapes(benchmark):
    """Another version of Pillow may move an edge a little, and no more."""
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("make_digits", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    file = tool.handwriting()
    framed = benchmark["hand"].items[:, 4:-4, 4:-4, 0].astype(float)
    assert np.abs(file["hand"] - framed).mean() < 1
    assert np.array_equal(file["hand_labels"], benchmark["hand"].labels)
    assert np.array_equal(file["hand_train"], benchmark["hand"].train)
    drawn = tool.printed("outline") / 255
    again = digits.rendered("outline", lambda position, _: drawn[position])
    assert np.abs(again.items.astype(float) - benchmark["outline"].items).mean() < 1


def test_it_is_made_once_in_a_process(benchmark):
    assert digits.load() is benchmark
