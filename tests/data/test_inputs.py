"""Everything that may be given as the images of a domain gives the same domain; anything else says what is accepted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from cosda.data import digits
from cosda.data.cache import content_key, pack, unpacked
from cosda.data.domain import Domain, Files, everything
from cosda.data.inputs import load_domain
from cosda.data.registry import BENCHMARKS
from cosda.errors import CosdaError

ORDER = ["dog/1.png", "cat/0.png", "dog/0.png", "cat/1.png"]
CLASSES = ("eel", "dog", "cat")
CLASSES_OF_DIGITS = tuple(map(str, range(10)))
LABELS = [1, 2, 1, 2]  # of ORDER, as positions in CLASSES


class Pairs(Dataset):
    """A map-style dataset of anything."""

    def __init__(self, items, classes=None):
        self.items = items
        if classes:
            self.classes = classes

    def __len__(self):
        return len(self.items)

    def __getitem__(self, position):
        item = self.items[position]
        if isinstance(item, Exception):
            raise item
        return item


@pytest.fixture
def site(tmp_path, tree, cache) -> Path:
    return tree(tmp_path / "site", "cat", "dog")


@pytest.fixture
def images(site) -> Iterator[list[Image.Image]]:
    """Opened and not yet loaded, as Pillow does it."""
    with ExitStack() as stack:
        yield [stack.enter_context(Image.open(site / name)) for name in ORDER]


@pytest.fixture
def pixels(images) -> np.ndarray:
    return np.stack([np.asarray(image) for image in images])


def packed(domain: Domain, size: int = 12) -> np.ndarray:
    return np.asarray(pack(domain, size).domain.items[everything(len(domain))])


# --- Forms ------------------------------------------------------------------------------------------------------------


def as_csv(site, images, pixels):
    path = site.parent / "list.csv"
    rows = [f"{n},site/{name},{name.split('/')[0]},x" for n, name in enumerate(ORDER)]
    path.write_text("\n".join(["id,Path,label,note", *rows, ""]), encoding="utf-8-sig")
    return path


def as_windows_csv(site, images, pixels):
    path = site / "list.CSV"
    rows = [f"{name.split('/')[0]};{name}".replace("/", "\\") for name in ORDER]
    path.write_text("\r\n".join(["class;file", *rows]))
    return str(path)


def as_list_file(site, images, pixels):
    path = site / "list.txt"
    path.write_text("".join(f"{name} {number}\n" for name, number in zip(ORDER, [1, 0, 1, 0], strict=True)))
    return path


def as_npz(site, images, pixels):
    np.savez(site.parent / "a.npz", images=pixels, labels=[name.split("/")[0] for name in ORDER])
    return site.parent / "a.npz"


LABELLED = {
    "csv": as_csv,
    "semicolons": as_windows_csv,
    "list file": as_list_file,
    "npz": as_npz,
    "dictionary": lambda site, images, pixels: {"images": pixels, "labels": ["dog", "cat", "dog", "cat"]},
    "dictionary of tensors": lambda site, images, pixels: {
        "images": torch.from_numpy(pixels).permute(0, 3, 1, 2),
        "labels": torch.tensor([1, 0, 1, 0]),
        "classes": ["cat", "dog"],
    },
    "pairs": lambda site, images, pixels: list(zip(images, ["dog", "cat", "dog", "cat"], strict=True)),
    "dataset with names": lambda site, images, pixels: Pairs(
        [(image, label) for image, label in zip(images, [1, 0, 1, 0], strict=True)], ["cat", "dog"]
    ),
    "dataset of arrays": lambda site, images, pixels: Pairs(
        [(array, np.int64(label)) for array, label in zip(pixels, [1, 0, 1, 0], strict=True)], ["cat", "dog"]
    ),
    "dataset of tensors, channels first, numbers": lambda site, images, pixels: TensorDataset(
        torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.tensor(LABELS)
    ),
    "dataset of floats": lambda site, images, pixels: TensorDataset(
        torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255, torch.tensor(LABELS)
    ),
}
UNLABELLED = {
    "paths": lambda site, images, pixels: [site / name for name in ORDER],
    "tuple of strings": lambda site, images, pixels: tuple(str(site / name) for name in ORDER),
    "array of strings": lambda site, images, pixels: np.array([str(site / name) for name in ORDER]),
    "images": lambda site, images, pixels: images,
    "array": lambda site, images, pixels: pixels,
    "list of arrays": lambda site, images, pixels: list(pixels),
    "tensor": lambda site, images, pixels: torch.from_numpy(pixels),
    "tensor, channels first": lambda site, images, pixels: torch.from_numpy(pixels).permute(0, 3, 1, 2),
    "tensor of floats": lambda site, images, pixels: torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255,
    "dataset": lambda site, images, pixels: Pairs(images),
    "dataset of one-tuples": lambda site, images, pixels: Pairs([(image,) for image in images]),
    "domain": lambda site, images, pixels: load_domain([site / name for name in ORDER]),
}


@pytest.mark.parametrize("form", [*LABELLED, *UNLABELLED])
def test_every_form_gives_the_same_images_in_their_order(site, images, pixels, form):
    data = (LABELLED | UNLABELLED)[form](site, images, pixels)
    domain = load_domain(data, labels=False, name="new")
    assert (domain.name, domain.kind, domain.labels) == ("new", "images", None)
    assert domain.train.tolist() == domain.test.tolist() == [0, 1, 2, 3]
    assert len(domain.names) == 4
    assert np.array_equal(packed(domain), pixels)
    assert np.array_equal(unpacked(domain, 12).domain.items[everything(4)], pixels)


@pytest.mark.parametrize("form", LABELLED)
def test_every_form_gives_the_same_labels(site, images, pixels, form):
    data = LABELLED[form](site, images, pixels)
    assert load_domain(data, CLASSES).labels.tolist() == LABELS
    if "numbers" not in form and "floats" not in form:
        assert load_domain(data).labels.tolist() == [1, 0, 1, 0]  # classes of its own, in alphabetical order
        unknown = "0, 1" if form == "list file" else "cat"  # a list whose folders are no classes has numbers
        with pytest.raises(
            CosdaError, match=f"classes that the model does not know: {unknown}. The model's.* are: dog"
        ):
            load_domain(data, ["dog"])


@pytest.mark.parametrize("form", UNLABELLED)
def test_forms_without_labels_have_none(site, images, pixels, form):
    assert load_domain(UNLABELLED[form](site, images, pixels), CLASSES).labels is None


def test_what_images_are_called(site, images, pixels, monkeypatch):
    monkeypatch.chdir(site)
    assert load_domain(ORDER).names == tuple(ORDER)
    assert load_domain(as_csv(site, images, pixels)).names == tuple(f"site/{name}" for name in ORDER)
    assert load_domain(as_csv(site, images, pixels)).name == "list"
    assert load_domain(images).names == load_domain(pixels).names == ("0", "1", "2", "3")
    assert load_domain(site).name == "site"
    assert load_domain(images).name == "data"


def test_an_image_stands_twice_if_it_is_given_twice(site):
    domain = load_domain([site / "cat/0.png", site / "cat/0.png"])
    assert len(domain) == 2
    assert len(packed(domain)) == 2


def test_one_image_is_a_domain_of_one(site, images):
    assert np.array_equal(packed(load_domain(site / ORDER[0])), packed(load_domain(images[0])))


def test_images_of_different_sizes_shapes_and_colours():
    rng = np.random.default_rng(0)
    grey, wide = rng.integers(0, 256, (20, 20), np.uint8), rng.integers(0, 256, (9, 30, 3), np.uint8)
    palette = Image.fromarray(wide).convert("P")
    clear = Image.new("RGBA", (5, 5), (0, 0, 0, 0))
    turned = Image.fromarray(wide)
    turned.getexif()[0x0112] = 3  # upside down
    items = [grey, grey[None], grey[..., None], wide, wide.transpose(2, 0, 1), palette, clear, turned]
    got = packed(load_domain([*items, torch.from_numpy(grey)[None] / 255, torch.from_numpy(wide.copy())]), 8)
    assert np.array_equal(got[0], got[1])
    assert np.array_equal(got[0], got[2])
    assert np.array_equal(got[0], got[8])
    assert np.array_equal(got[3], got[4])
    assert np.array_equal(got[3], got[9])
    assert (got[6] == 255).all()
    assert np.array_equal(got[7], got[3][::-1, ::-1])


def test_a_tensor_whose_both_ends_look_like_channels_has_them_first():
    image = torch.arange(27, dtype=torch.uint8).view(3, 3, 3)
    assert np.array_equal(packed(load_domain([image]), 3)[0], image.permute(1, 2, 0).numpy())
    assert np.array_equal(packed(load_domain([image.numpy()]), 3)[0], image.numpy())


@pytest.mark.parametrize("form", ["array", "tensor", "half", "dataset", "list", "dictionary"])
def test_feature_vectors(form):
    rows = np.random.default_rng(0).normal(size=(4, 6)).round(1).astype(np.float16)
    data = {
        "array": rows.astype(np.float64),
        "tensor": torch.from_numpy(rows).float(),
        "half": torch.from_numpy(rows),
        "dataset": TensorDataset(torch.from_numpy(rows).double(), torch.tensor([0, 2, 1, 0])),
        "list": list(rows.astype(np.float32)),
        "dictionary": {"features": rows, "labels": [0, 2, 1, 0]},
    }[form]
    domain = load_domain(data)
    assert (domain.kind, domain.width, domain.items.dtype) == ("features", 6, np.float32)
    assert np.array_equal(domain.items, rows.astype(np.float32))
    assert (domain.labels is not None) == (form in ("dataset", "dictionary"))


def test_a_dataset_is_read_lazily_and_its_key_once(images, cache):
    reads = []

    class Counting(Pairs):
        def __getitem__(self, position):
            reads.append(position)
            return super().__getitem__(position)

    domain = load_domain(Counting(images))
    assert set(reads) == {0}
    key = content_key(domain)
    assert sorted(set(reads)) == [0, 1, 2, 3]
    reads.clear()
    assert content_key(domain) == key
    assert reads == []
    packed(domain)
    assert sorted(reads) == [0, 1, 2, 3]  # each once
    reads.clear()
    packed(domain)
    assert reads == []
    assert content_key(load_domain(images[::-1])) != key
    assert content_key(load_domain(Pairs([(image, 1) for image in images]))) == key


def test_items_of_a_dataset_that_fail_are_skipped_like_files_that_do(images):
    broken = Pairs([images[0], ValueError("no such row"), images[2]])
    skipped = pack(load_domain(broken), 12)
    assert skipped.skipped == [("1", "ValueError: no such row")]
    assert len(skipped.domain) == 2
    with pytest.raises(CosdaError, match=r"1 of the 3 images of data cannot be read \(item 1: ValueError: no such row"):
        pack(load_domain(broken), 12, strict=True)


def test_torch_is_not_imported_for_files(site):
    code = (
        "import sys; from cosda.data.inputs import load_domain; load_domain(sys.argv[1]); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, site], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- Labels that are not read -----------------------------------------------------------------------------------------


def test_without_labels_a_folder_is_all_its_images_whatever_its_folders_are_called(tmp_path, tree, draw, cache):
    tree(tmp_path / "a", "cat", "dog", "train/x", "test/deep/er")
    tree(tmp_path / "b", "0", "1", "2/images", "3")
    draw(tmp_path / "a/loose.png", seed=9)
    draw(tmp_path / "b/loose.png", seed=9)
    first, second = (load_domain(tmp_path / name, CLASSES, labels=False) for name in "ab")
    assert first.names[:2] == ("cat/0.png", "cat/1.png")
    assert len(first) == len(second) == 9
    for domain in (first, second):
        assert domain.labels is None
        assert domain.train.tolist() == domain.test.tolist() == list(range(9))


def test_without_labels_renamed_class_folders_in_the_same_order_are_the_same_content(tmp_path, tree, cache):
    tree(tmp_path / "a", "cat", "dog")
    before = content_key(load_domain(tmp_path / "a", labels=False))
    os.rename(tmp_path / "a/cat", tmp_path / "a/1")
    os.rename(tmp_path / "a/dog", tmp_path / "a/2")
    assert content_key(load_domain(tmp_path / "a", labels=False)) == before


@pytest.mark.parametrize(
    "form",
    ["mixed list", "twice", "mixed csv", "negative", "wrong length", "objects", "dictionary", "dataset", "domain"],
)
def test_labels_that_are_not_read_may_be_wrong(site, images, pixels, form):
    match form:
        case "mixed list":
            data = site / "list.txt"
            data.write_text("cat/0.png 0\ncat/1.png\n")
        case "twice":
            data = site / "list.txt"
            data.write_text("cat/0.png 0\ncat/0.png 1\n")
        case "mixed csv":
            data = site / "list.csv"
            data.write_text("path,label\ncat/0.png,cat\ncat/1.png,\n")
        case "negative" | "wrong length" | "objects":
            data = site / "a.npz"
            labels = {"negative": [-1, 0], "wrong length": [0], "objects": np.array([{}, None], object)}[form]
            np.savez(data, images=pixels[:2], labels=labels, classes=["x"])
        case "dictionary":
            data = {"images": pixels[:2], "labels": [0.5, 1]}
        case "dataset":
            data = Pairs([(images[0], -1), (images[1], None)])
        case "domain":
            data = Domain("x", pixels[:2], np.array([7, 7]), everything(2), everything(2))
    domain = load_domain(data, CLASSES, labels=False)
    assert domain.labels is None
    assert len(domain) == 2
    if form != "domain":  # whose labels are the business of who made it
        with pytest.raises(CosdaError):
            load_domain(data, CLASSES)


# --- Labels that are --------------------------------------------------------------------------------------------------


def test_classes_take_the_order_of_the_model(tmp_path, tree):
    tree(tmp_path / "site", "cat", "dog")
    assert load_domain(tmp_path / "site", ("eel", "dog", "cat")).labels.tolist() == [2, 2, 1, 1]
    assert load_domain(tmp_path / "site").labels.tolist() == [0, 0, 1, 1]
    with pytest.raises(CosdaError, match=r"site has classes that the model does not know: cat, dog. The model's"):
        load_domain(tmp_path / "site", ("red", "blue"))
    tree(tmp_path / "validation", "aeroplane", "bus")
    short = tuple(BENCHMARKS["visda"].classes.values())
    assert load_domain(tmp_path / "validation", short).labels.tolist() == [0, 0, 2, 2]


def test_numbers_are_positions_in_the_models_classes(tmp_path, tree):
    tree(tmp_path, "all/x", "all/y")
    (tmp_path / "list.txt").write_text("all/y/0.png 0\nall/x/0.png 1\n")
    assert load_domain(tmp_path / "list.txt", ("y", "x")).labels.tolist() == [0, 1]
    assert load_domain(tmp_path / "list.txt", ("cat", "dog")).labels.tolist() == [0, 1]  # by number
    (tmp_path / "list.csv").write_text("image,label\nall/x/0.png,2\nall/y/0.png,0\n")
    assert load_domain(tmp_path / "list.csv", ("cat", "dog", "eel")).labels.tolist() == [2, 0]
    (tmp_path / "list.csv").write_text("image,label\nall/x/0.png,002\nall/y/0.png,001\n")
    assert load_domain(tmp_path / "list.csv", ("001", "002")).labels.tolist() == [1, 0]
    np.savez(tmp_path / "f.npz", features=np.ones((2, 3)), labels=[1, 0])
    assert load_domain(tmp_path / "f.npz", ("cat", "dog", "eel")).labels.tolist() == [1, 0]
    with pytest.raises(CosdaError, match="does not know: 0, 1"):
        load_domain(tmp_path / "f.npz", ("cat",))


def test_predictions_can_be_read_back_as_labels(site):
    (site / "predictions.csv").write_text("image,class,probability\ncat/0.png,dog,0.9\ndog/0.png,dog,0.8\n")
    assert load_domain(site / "predictions.csv", CLASSES).labels.tolist() == [1, 1]


# --- Files that are ignored -------------------------------------------------------------------------------------------


def test_files_that_are_no_images_are_counted(tmp_path, tree, draw):
    tree(tmp_path / "site", "cat", "dog")
    names = [
        "cat/a.heic",
        "cat/b.HEIC",
        "dog/deep/c.avif",
        "notes.txt",
        "README",
        "cat/.DS_Store",
        "Thumbs.db",
        ".x.heic",
    ]
    for name in names:
        (tmp_path / "site" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "site" / name).write_bytes(b"?")
    draw(tmp_path / "site/loose.png")
    counted = {".avif": 1, ".heic": 2, ".txt": 1, "without extension": 1}
    domain = load_domain(tmp_path / "site", labels=False)
    assert domain.ignored == counted
    assert domain.ignored_files() == "1 .avif, 2 .heic, 1 .txt, 1 without extension"
    assert pack(domain, 8, tmp_path / "cache").domain.ignored == counted
    assert len(domain) == 5
    labelled = load_domain(tmp_path / "site")
    assert labelled.ignored == {**counted, ".png beside class folders": 1}
    assert len(labelled) == 4
    assert load_domain(tmp_path / "site/cat/0.png").ignored_files() == ""


# --- Anything else ----------------------------------------------------------------------------------------------------


class Endless(IterableDataset):
    def __iter__(self):
        yield Image.new("RGB", (4, 4))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "NoneType cannot be read as images"),
        (7, "int cannot be read as images"),
        ((image for image in [1]), "generator cannot be read as images"),
        ({1, 2}, "set cannot be read as images"),
        (Endless(), "Endless cannot be read as images"),
        (DataLoader(Pairs([1])), "Give its dataset instead of the loader"),
        (Pairs([KeyError("gone")]), "item 0 raises KeyError: 'gone'"),
    ],
)
def test_what_is_not_data_says_what_is_accepted(data, message):
    with pytest.raises(CosdaError, match=message) as caught:
        load_domain(data)
    for form in ("folder", "CSV", ".npz", "list of paths", "PIL", "tensor", "Dataset"):
        assert form in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "this list is empty"),
        (Pairs([]), "this Pairs is empty"),
        (
            ["nowhere/a.png", "nowhere/b.png"],
            "none of the 2 paths of the list is a file; the first one is nowhere/a.png",
        ),
        ([os.curdir], "Give a folder by its path alone"),
        ([{"image": 1}], "item 0 is no image: expected a PIL image, .* found dict"),
        ([np.zeros((4, 4, 3, 3), np.uint8)], r"item 0 is no image.*found \(4, 4, 3, 3\) of uint8"),
        ([np.zeros((4, 4, 2), np.uint8)], "item 0 has 2 channels"),
        ([np.zeros((4, 4), np.int32)], "item 0 is of int32. Images are uint8"),
        ([torch.full((3, 4, 4), 1.5)], "item 0 has values from 1.5 to 1.5.* without normalisation"),
        ([torch.full((3, 4, 4), float("nan"))], "item 0 has values from nan"),
        (torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)), "the array has values from -"),
        (np.zeros((8, 8, 3), np.uint8), r"shape of one image, \(8, 8, 3\); give it in a list"),
        (np.zeros((2, 8, 8, 4), np.uint8), "Expected images as uint8"),
        (np.zeros((2, 8), np.int64), "Expected images as uint8"),
        (np.array([[0.0, np.inf]]), "not finite"),
        ({"pixels": np.zeros(3)}, "dictionary has none of the expected arrays.*Found: pixels"),
        ({"a_features": np.ones((2, 3)), "b_features": np.ones((2, 3))}, r"several domains \(a, b\)"),
        ([np.ones(3), np.ones((3, 3))], r"item 1 is no feature vector.*found \(3, 3\) of float64"),
        ([(np.ones(3), 1), (np.ones(3),)], "item 1 has no label, and item 0 has one"),
        ([(np.ones(3), 0.5), (np.ones(3), 1.5)], "labels must be whole numbers"),
    ],
)
def test_wrong_data_say_what_is_wrong(data, message):
    with pytest.raises(CosdaError, match=message):
        load_domain(data)


def test_a_wrong_type_in_the_middle_of_a_dataset_stops_packing(images):
    with pytest.raises(CosdaError, match=r"item 1 is no image: .* found str"):
        pack(load_domain([images[0], "a.png"]), 8)


def test_a_domain_of_the_embedded_benchmark():
    domain = load_domain("digits#hand", CLASSES_OF_DIGITS)
    wanted = digits.load()["hand"]
    assert (domain.name, len(domain), len(domain.train), len(domain.test)) == ("hand", 1797, 1200, 597)
    assert np.array_equal(domain.items, wanted.items)
    assert np.array_equal(domain.labels, wanted.labels)
    assert load_domain("digits#hand", labels=False).labels is None
    with pytest.raises(CosdaError, match=r"digits has no domain 'hands'. Did you mean 'hand'\?"):
        load_domain("digits#hands")
    with pytest.raises(CosdaError, match=r"digits holds several domains \(print, colour, outline, hand\)"):
        load_domain("digits")


def test_a_folder_of_that_name_goes_before_the_embedded_benchmark(tmp_path, tree, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tree(tmp_path / "digits", "cat")
    assert load_domain("digits", labels=False).name == "digits"


def test_wrong_files_say_what_is_accepted(tmp_path, tree):
    tree(tmp_path / "site", "cat")
    with pytest.raises(CosdaError, match=r"sit does not exist. Did you mean 'site'\? Accepted are a folder"):
        load_domain(tmp_path / "sit")
    (tmp_path / "photo.heic").write_bytes(b"?")
    with pytest.raises(CosdaError, match=r"photo.heic is of no known kind. Accepted are .*Images end in .bmp"):
        load_domain(str(tmp_path / "photo.heic"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            r"no column with paths. Its header must have path, image, file or file_name, and may have label or class, "
            r"and domain; it has: \.",
        ),
        ("name,label\na,b\n", "it has: name, label"),
        ("path,label\n", "has a header and no rows"),
        ("path,label\nsite/cat/0.png,cat\n,dog\n", "line 3: the column 'path' is empty"),
        ("path,label\nsite/cat/0.png,cat\n\nsite/cat/1.png\n", "line 4: some rows have a label and some have none"),
        ("path,domain\nsite/cat/0.png,\n", "line 2: the column 'domain' is empty"),
        ("path\nelsewhere/0.png\n", "were not found: its first one is elsewhere/0.png, looked for below"),
        ("path\nhttps://example.org/0.png\n", r"https://example.org/0.png\. Addresses are never fetched: download"),
        ("path\n\x00\n", "list.csv"),
    ],
)
def test_a_wrong_csv_says_where(tmp_path, tree, text, message):
    tree(tmp_path, "site/cat")
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(CosdaError, match=message):
        load_domain(tmp_path / "list.csv")


def test_a_csv_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "list.csv").write_bytes("path\nGrün.png\n".encode("latin-1"))
    with pytest.raises(CosdaError, match=r"cannot be read as a CSV file: 'utf-8' codec"):
        load_domain(tmp_path / "list.csv")


def test_a_domain_stays_as_it_is(site):
    domain = load_domain(site)
    assert load_domain(domain, ("only one",)) is domain
    assert isinstance(load_domain(domain, labels=False).items, Files)
