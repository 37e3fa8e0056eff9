"""What may be wrong with an .npz file is said in one line, before memory is taken for what it claims."""

from __future__ import annotations

import io
import struct
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cosda.data.arrays import read_npz
from cosda.data.benchmarks import load
from cosda.data.doctor import examine
from cosda.data.inputs import load_domain
from cosda.errors import CosdaError

ROWS = np.ones((4, 3), np.float32)


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def header(text: str, version: int = 1) -> bytes:
    content = text.encode() + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(content))
    return b"\x93NUMPY" + bytes([version, 0]) + length + content


def archive(path: Path, members: dict[str, bytes] | list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> Path:
    pairs = members if isinstance(members, list) else list(members.items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of two members with one name
        with zipfile.ZipFile(path, "w", method) as file:
            for name, content in pairs:
                file.writestr(name, content)
    return path


def patched(path: Path, offset: int, value: bytes) -> Path:
    """The archive with some bytes at an offset of its first local and of its central header."""
    data = bytearray(path.read_bytes())
    for signature, shift in ((b"PK\3\4", 0), (b"PK\1\2", 2)):
        at = data.index(signature) + offset + shift
        data[at : at + len(value)] = value
    path.write_bytes(bytes(data))
    return path


def corrupt(path: Path) -> Path:
    archive(path, {"features.npy": npy(np.random.default_rng(0).normal(size=(50, 20)))}, zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    data[200:400] = bytes(200)
    path.write_bytes(bytes(data))
    return path


FEATURES = {"features.npy": npy(ROWS)}
BAD = {
    "empty": (lambda p: (p.write_bytes(b"") and p) or p, "it is empty"),
    "corrupt deflate": (corrupt, "CRC|Error -3|cut off"),
    "encrypted": (lambda p: patched(archive(p, FEATURES), 6, b"\1\0"), "encrypted"),
    "unknown compression": (lambda p: patched(archive(p, FEATURES), 8, b"\x63\0"), "packed by a method"),
    "bzip2": (lambda p: archive(p, FEATURES, zipfile.ZIP_BZIP2), "packed by a method that numpy does not use"),
    "lzma": (lambda p: archive(p, FEATURES, zipfile.ZIP_LZMA), "packed by a method that numpy does not use"),
    "plain array": (lambda p: p.write_bytes(npy(ROWS)) and p, "single array"),
    "wrong checksum": (lambda p: patched(archive(p, FEATURES), 14, b"\0\0\0\0"), "CRC"),
    "twice the same": (lambda p: archive(p, [*FEATURES.items()] * 2), "more than one array called features"),
    "twice, without ending": (lambda p: archive(p, {**FEATURES, "features": npy(ROWS)}), "more than one array"),
    "objects": (lambda p: archive(p, {"features.npy": npy(np.array([{}], object))}), "holds object"),
    "huge header": (
        lambda p: archive(p, {"features.npy": header("{'descr': '<f4'" + " " * 10**6 + "}", 2)}, zipfile.ZIP_DEFLATED),
        "header",
    ),
    "header that claims much": (
        lambda p: archive(p, {"features.npy": header("{'descr':'<f4','fortran_order':False,'shape':(9,9)}") + b"12"}),
        r"claims \(9, 9\) values of float32, and has 2 bytes",
    ),
    "negative shape": (
        lambda p: archive(
            p, {"features.npy": header("{'descr':'<f4','fortran_order':False,'shape':(-1,-1)}") + b"1234"}
        ),
        "shape|dimension",
    ),
    "nonsense header": (lambda p: archive(p, {"features.npy": header("import os")}), "header"),
    "brackets": (lambda p: archive(p, {"features.npy": header("(" * 3000)}), "header of features"),
    "no width": (lambda p: archive(p, {"labels.npy": npy(np.array(["", ""])[:0]), **FEATURES}), "labels"),
    "a text file": (lambda p: archive(p, {"features.npy": b"no array"}), "magic"),
    "version 9": (lambda p: archive(p, {"features.npy": b"\x93NUMPY\x09\0"}), "version"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_archive_is_explained(tmp_path, fault):
    make, message = BAD[fault]
    path = make(tmp_path / "x.npz")
    with pytest.raises(CosdaError, match=message) as found:
        read_npz(path)
    assert str(path) in str(found.value)
    assert "\n" not in str(found.value)
    assert examine(path).problems == [str(found.value)] or "exist" in str(found.value)


def test_what_is_not_wanted_is_not_read(tmp_path):
    path = archive(tmp_path / "x.npz", {**FEATURES, "labels.npy": b"no array"})
    assert load_domain(path, labels=False).labels is None
    with pytest.raises(CosdaError):
        load_domain(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize(
    "array", [ROWS, np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(3, dtype=">f4")[None]]
)
def test_a_good_archive_is_read_as_numpy_reads_it(tmp_path, method, array):
    path = archive(tmp_path / "x.npz", {"features.npy": npy(array)}, method)
    assert np.array_equal(load_domain(path).items, array.astype(np.float32))


def bomb(path: Path, mib: int) -> Path:
    """Zeros that take a thousandth of their size."""
    shape = f"{{'descr':'<f4','fortran_order':False,'shape':({mib * 2**18},1)}}"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open("features.npy", "w") as member:
        member.write(header(shape))
        for _ in range(mib):
            member.write(bytes(2**20))
    return path


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setenv("COSDA_MAX_UNPACKED_MIB", "30")
    path = bomb(tmp_path / "bomb.npz", 64)
    assert path.stat().st_size < 2**17
    tracemalloc.start()
    with pytest.raises(CosdaError, match=r"unpack to 64 MiB, and the limit is 30.*COSDA_MAX_UNPACKED_MIB"):
        read_npz(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
    monkeypatch.setenv("COSDA_MAX_UNPACKED_MIB", "64.5")
    with pytest.raises(CosdaError, match="COSDA_MAX_UNPACKED_MIB must be a whole number"):
        read_npz(path)
    monkeypatch.setenv("COSDA_MAX_UNPACKED_MIB", "70")
    assert len(read_npz(path)[0].domain) == 64 * 2**18


def test_an_archive_that_lies_about_its_size_is_not_unpacked_further(tmp_path):
    path = bomb(tmp_path / "bomb.npz", 64)
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\1\2") + 24  # the size that the table of contents claims
    data[at : at + 4] = struct.pack("<I", len(header("x")) + 3)
    path.write_bytes(bytes(data))
    tracemalloc.start()
    with pytest.raises(CosdaError):
        read_npz(path)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_what_lies_on_the_disk_unpacked_may_be_large(tmp_path, monkeypatch):
    monkeypatch.setenv("COSDA_MAX_UNPACKED_MIB", "1")
    np.savez(tmp_path / "x.npz", features=np.ones((2**18, 2), np.float32))
    assert len(load_domain(tmp_path / "x.npz")) == 2**18


# --- keys, classes and labels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"a_features": ROWS, "b_feature": ROWS}, "'b_feature', which means nothing.*Did you mean 'b_features'"),
        ({"features": ROWS, "lables": np.arange(4)}, "'lables', which means nothing here. Did you mean 'labels'"),
        ({"features": ROWS, "x" * 50_000: ROWS}, "xxx"),
        ({"features": ROWS, "labels": np.arange(4), "classes": np.array("abcd")}, r"'classes' must be a list of names"),
        ({"features": ROWS, "labels": np.arange(4), "classes": np.ones((2, 2))}, r"'classes' must be a list of names"),
        ({"features": ROWS, "labels": np.arange(2).repeat(2), "classes": np.array(["a", "a"])}, "has its name twice"),
        ({"features": ROWS, "labels": np.array([b"\xff\xfe"] * 4)}, "must be text in UTF-8"),
        ({"features": ROWS, "labels": np.array([0, 1, 2, 10**5])}, "100,001 classes, and the limit is 5,000"),
        (
            {"features": ROWS, "labels": np.array([0, 1, 2, 2**63], np.uint64)},
            "and the limit is 5,000.*COSDA_MAX_CLASSES",
        ),
        ({"features": ROWS, "labels": np.array([0, -1, 2, 2**62])}, "from 0 up"),
        ({"features": np.full((4, 3), 1e300)}, "not finite"),
        ({"features": np.ones((1, 100_001), np.float32)}, "100,001 features for each image, and the limit is 100,000"),
        (
            {
                f"{part}_{what}": ROWS if what == "features" else labels
                for part, labels in (("train", np.arange(4)), ("test", np.array([b"\xc3\xa4"] * 4)))
                for what in ("features", "labels")
            },
            "one has names as labels and the other has numbers",
        ),
    ],
)
def test_what_arrays_cannot_mean_is_said(tmp_path, keys, message):
    np.savez(tmp_path / "x.npz", **keys)
    with pytest.raises(CosdaError, match=message):
        read_npz(tmp_path / "x.npz")
    with pytest.raises(CosdaError, match=message):
        load_domain(dict(keys))


def test_labels_of_bytes_are_names(tmp_path):
    np.savez(tmp_path / "x.npz", features=ROWS, labels=np.array(["ä", "b", "ä", "b"]).astype("U1").tolist())
    np.savez(tmp_path / "y.npz", features=ROWS, labels=np.array(["ä".encode(), b"b"] * 2), classes=[b"b", "ä".encode()])
    assert read_npz(tmp_path / "x.npz")[0].classes == ("b", "ä")
    (reading,) = read_npz(tmp_path / "y.npz")
    assert reading.classes == ("b", "ä")
    assert reading.domain.labels.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"b_features": np.ones((4, 5))}, "3 features in a; 5 features in b"),
        ({"b_images": np.zeros((4, 8, 8), np.uint8)}, "3 features in a; images in b"),
    ],
)
def test_inputs_of_different_kinds_are_noticed_before_anything_is_trained(tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", a_features=ROWS, a_labels=[0, 1, 0, 1], b_labels=[0, 1, 0, 1], **arrays)
    with pytest.raises(CosdaError, match=f"different inputs: {message}"):
        load(tmp_path / "x.npz")
    assert any(message in problem for problem in examine(tmp_path / "x.npz").problems)


def test_grey_images_take_no_more_memory_as_rgb(tmp_path):
    grey = np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4)
    np.savez(tmp_path / "x.npz", images=grey)
    items = load_domain(tmp_path / "x.npz").items
    assert items.shape == (2, 4, 4, 3)
    assert items.strides[3] == 0
    assert np.array_equal(items[np.array([1])][0, :, :, 2], grey[1])
