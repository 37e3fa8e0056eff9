from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cosda.data import readers
from cosda.data.arrays import read_npz
from cosda.data.domain import Files
from cosda.data.lists import read_list
from cosda.errors import CosdaError


def names(reading: readers.Reading) -> tuple[str, ...]:
    assert isinstance(reading.domain.items, Files)
    return reading.domain.items.names


def test_class_folders_give_sorted_classes_and_files(tmp_path, tree, draw):
    tree(tmp_path / "site", "dog", "cat")
    draw(tmp_path / "site/cat/UPPER.JPG")
    draw(tmp_path / "site/cat/deeper/x.png")
    draw(tmp_path / "site/cat/._hidden.png")
    draw(tmp_path / "site/.cache/y.png")
    (tmp_path / "site/dog/notes.txt").write_text("not an image")
    reading = readers.read_folder(tmp_path / "site")
    assert reading.classes == ("cat", "dog")
    assert names(reading) == (
        "cat/0.png",
        "cat/1.png",
        "cat/UPPER.JPG",
        "cat/deeper/x.png",
        "dog/0.png",
        "dog/1.png",
    )
    assert reading.domain.labels.tolist() == [0, 0, 0, 0, 1, 1]
    assert reading.domain.name == "site"
    assert reading.domain.train.tolist() == reading.domain.test.tolist() == [0, 1, 2, 3, 4, 5]
    assert reading.domain.items.path(0).is_file()


def test_office31_keeps_its_classes_in_a_folder_called_images(tmp_path, tree):
    tree(tmp_path, "dslr/images/mug", "dslr/images/pen")
    assert readers.read_folder(tmp_path / "dslr").classes == ("mug", "pen")


def test_train_and_test_folders_are_a_split(tmp_path, tree):
    tree(tmp_path / "site", "train/cat", "train/dog", "test/cat")
    reading = readers.read_folder(tmp_path / "site")
    assert reading.is_split
    assert [names(reading)[i] for i in reading.domain.test] == ["test/cat/0.png", "test/cat/1.png"]
    assert len(reading.domain.train) == 4
    assert reading.classes == ("cat", "dog")


def test_loose_images_are_found_at_any_depth_without_labels(tmp_path, draw):
    draw(tmp_path / "b.png")
    draw(tmp_path / "2024/a.png")
    (tmp_path / "2024/loop").symlink_to(tmp_path)
    reading = readers.read_images(tmp_path)
    assert names(reading) == ("2024/a.png", "b.png")
    assert reading.domain.labels is None
    assert reading.classes == ()


def test_a_folder_without_images_says_what_it_holds(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(CosdaError, match="holds no images; found 0 folders, 0 images and 1 other files"):
        readers.read_images(tmp_path)
    with pytest.raises(CosdaError, match="has no class folders"):
        readers.read_folder(tmp_path)


def test_a_list_may_have_spaces_and_takes_class_names_from_folders(tmp_path, tree):
    tree(tmp_path, "Real World/tv set", "Real World/mug")
    path = tmp_path / "real.txt"
    path.write_text("Real World/tv set/0.png 0\nReal World/mug/1.png 1\n\nReal World/mug/0.png 1\n")
    reading = read_list(path)
    assert reading.classes == ("mug", "tv set")  # alphabetical, whatever the numbers
    assert names(reading) == ("Real World/mug/0.png", "Real World/mug/1.png", "Real World/tv set/0.png")
    assert reading.domain.labels.tolist() == [0, 0, 1]
    assert read_list(path, by_folder=False).domain.labels.tolist() == [1, 1, 0]


def test_a_list_whose_folders_are_no_classes_keeps_the_numbers(tmp_path, draw):
    for name in ("a.png", "b.png", "c.png"):
        draw(tmp_path / "all" / name)
    (tmp_path / "list.txt").write_text("all/a.png 0\nall/b.png 2\nall/c.png 0\n")
    reading = read_list(tmp_path / "list.txt")
    assert reading.classes == ("0", "1", "2")
    assert reading.domain.labels.tolist() == [0, 2, 0]


def test_a_list_without_labels_a_root_and_windows_paths(tmp_path, draw):
    draw(tmp_path / "far/in/photo 1.png")
    (tmp_path / "lists").mkdir()
    path = tmp_path / "lists/new.txt"
    path.write_text("in\\photo 1.png\n")
    reading = read_list(path, root=tmp_path / "far")
    assert names(reading) == ("in/photo 1.png",)
    assert reading.domain.labels is None


def test_lists_and_folders_may_spell_a_domain_differently(tmp_path, tree):
    tree(tmp_path, "Real World/mug", "Real World/pen")
    (tmp_path / "image_list").mkdir()
    path = tmp_path / "image_list/Real_World.txt"
    path.write_text("Real_World/mug/0.png 0\nReal_World/pen/0.png 1\n")
    assert names(read_list(path)) == ("Real World/mug/0.png", "Real World/pen/0.png")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a/0.png 0\na/1.png\n", "labels on some lines"),
        ("a/0.png 0\na/0.png 1\n", "line 2: a/0.png stands there twice"),
        ("a/0.png 0\nhello world\n", 'line 2: expected "path label"'),
        ("b/0.png 0\n", "were not found: its first entry is b/0.png"),
    ],
)
def test_a_wrong_list_says_where(tmp_path, tree, text, message):
    tree(tmp_path, "a")
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(CosdaError, match=message):
        read_list(tmp_path / "list.txt")


def test_arrays_of_one_domain(tmp_path):
    grey = np.arange(3 * 4 * 4, dtype=np.uint8).reshape(3, 4, 4)
    np.savez(tmp_path / "one.npz", images=grey, labels=[0, 2, 1], train=[0, 1], test=[2], classes=["a", "b", "c"])
    (reading,) = read_npz(tmp_path / "one.npz")
    assert reading.domain.name == "one"
    assert reading.domain.kind == "images"
    assert reading.domain.items.shape == (3, 4, 4, 3)
    assert (reading.domain.items[np.array([1])] == grey[1][None, ..., None]).all()
    assert reading.classes == ("a", "b", "c")
    assert reading.is_split
    assert reading.domain.test.tolist() == [2]


def test_arrays_of_several_domains_with_splits_and_features(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        f"{domain}_{part}_features": rng.normal(size=(n, 5))
        for domain in ("old_site", "new_site")
        for part, n in (("train", 4), ("test", 2))
    }
    labels = {key.replace("features", "labels"): np.arange(len(value)) for key, value in arrays.items()}
    np.savez(tmp_path / "sites.npz", **arrays, **labels)
    old, new = read_npz(tmp_path / "sites.npz")
    assert (old.domain.name, new.domain.name) == ("old_site", "new_site")
    assert old.domain.kind == "features"
    assert old.domain.items.dtype == np.float32
    assert old.domain.train.tolist() == [0, 1, 2, 3]
    assert old.domain.test.tolist() == [4, 5]
    assert old.domain.labels.tolist() == [0, 1, 2, 3, 0, 1]
    assert old.classes == ("0", "1", "2", "3")


def test_arrays_in_two_parts_are_one_domain(tmp_path):
    np.savez(tmp_path / "parts.npz", train_features=np.ones((2, 3)), test_features=np.zeros((1, 3)))
    (reading,) = read_npz(tmp_path / "parts.npz")
    assert reading.domain.name == "parts"
    assert (reading.domain.train.tolist(), reading.domain.test.tolist()) == ([0, 1], [2])


def test_arrays_may_have_names_as_labels_or_none(tmp_path):
    np.savez(tmp_path / "a.npz", features=np.ones((3, 2), np.float32), labels=["dog", "cat", "dog"])
    (reading,) = read_npz(tmp_path / "a.npz")
    assert reading.classes == ("cat", "dog")
    assert reading.domain.labels.tolist() == [1, 0, 1]
    np.savez(tmp_path / "b.npz", features=np.ones((3, 2), np.float32))
    assert read_npz(tmp_path / "b.npz")[0].domain.labels is None


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": [1]}, "none of the expected arrays.*Found: x"),
        ({"images": np.zeros((2, 4, 4, 3))}, "shape .2, 4, 4, 3. of float64"),
        ({"images": np.zeros((2, 3, 4, 4), np.uint8)}, "Expected images as uint8"),
        ({"features": np.full((2, 3), np.nan)}, "not finite"),
        ({"features": np.zeros((2, 3)), "labels": [1]}, "2 rows but labels of shape"),
        ({"features": np.zeros((2, 3)), "labels": [0, -1]}, "whole numbers from 0"),
        ({"features": np.zeros((2, 3)), "labels": [0, 5], "classes": ["a"]}, "has label 5, but 'classes' names 1"),
        ({"features": np.zeros((2, 3)), "train": [0], "test": [7]}, "'test' must hold positions from 0 to 1"),
        ({"features": np.zeros((2, 3)), "train": [0]}, "'test' is missing"),
        ({"train_features": np.zeros((2, 3))}, "a train part but not the other"),
        ({"labels": [1]}, "images or features is missing"),
    ],
)
def test_wrong_arrays_say_what_was_expected(tmp_path, arrays, message):
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(CosdaError, match=message):
        read_npz(tmp_path / "wrong.npz")


def test_pickles_and_damaged_array_files_are_refused(tmp_path):
    np.savez(tmp_path / "pickle.npz", images=np.array([{"a": 1}], dtype=object))
    (tmp_path / "damaged.npz").write_bytes(b"PK\3\4 not really")
    for name in ("pickle.npz", "damaged.npz"):
        with pytest.raises(CosdaError, match=r"cannot be read as an .npz file of plain arrays"):
            read_npz(tmp_path / name)


def test_names_of_the_current_folder(tmp_path, draw, monkeypatch):
    draw(tmp_path / "here/a.png")
    monkeypatch.chdir(tmp_path / "here")
    assert readers.read_images(Path(".")).domain.name == "here"
