"""Whatever the data are: exit code 0, 2 or 3, no traceback, no hang, bounded memory, nothing written elsewhere."""

from __future__ import annotations

import io
import os
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from cases import CASES
from corpus import CORPUS, image
from hypothesis import given
from hypothesis import strategies as st
from making import damaged, place
from PIL import Image
from server import Server

FEW = ("--epochs", "0", "--set", "source.epochs=1", "--set", "network.bottleneck=4", "--quiet")
COMMANDS = {
    "doctor": lambda data, model, out: ("doctor", data),
    "predict": lambda data, model, out: ("predict", model, data, "--quiet", "--output", out / "found.csv"),
    "evaluate": lambda data, model, out: ("evaluate", model, data, "--quiet"),
    "adapt": lambda data, model, out: (
        "adapt",
        model,
        data,
        "--to",
        out / "new",
        "--out",
        out / "runs",
        *FEW[:2],
        "-q",
    ),
    "run": lambda data, model, out: ("run", data, "--method", "source", "--out", out / "runs", *FEW),
    "profile": lambda data, model, out: ("profile", model, data, "--to", out / "new", "--labelled", "--quiet"),
    "monitor": lambda data, model, out: ("monitor", model, data, "--quiet"),
    "diff": lambda data, model, out: ("diff", model, model, data, "--output", out / "found.html", "--quiet"),
    "export": lambda data, model, out: ("export", model, "--to", out / "new.pt", "--verify", data, "--quiet"),
    "source": lambda data, model, out: (
        *("source", data, "--domain", "a", "--model", out / "new", "--out", out / "runs"),
        *FEW[2:],
    ),
}
CODES = {"monitor": (0, 2, 4, 5)}  # it tells a scheduler what to do
OF_ONE = [name for name in COMMANDS if name not in ("doctor", "run", "source")]
OF_IMAGES = [name for name in COMMANDS if name not in ("run", "source")]  # of one domain


def do(server: Server, name: str, data: Path, models: dict[str, Path], kind: str, out: Path) -> None:
    server.run(*COMMANDS[name](data, models[kind], out)).check(CODES.get(name, (0, 2, 3)))


@pytest.mark.parametrize("case", CORPUS)
def test_what_once_did_harm_does_none(server, models, tmp_path, case):
    with place(tmp_path) as folder:
        data = CORPUS[case](folder / "data")
        for name in COMMANDS if CASES else ("doctor", "predict"):
            (folder / "out" / name).mkdir()
            do(server, name, data, models, "features" if data.suffix == ".npz" else "images", folder / "out" / name)


# --- what cases are made of -------------------------------------------------------------------------------------------

PARTS = (
    "images",
    "features",
    "labels",
    "train_features",
    "test_features",
    "train_labels",
    "test_labels",
    "train",
    "test",
)
NAMES = st.sampled_from(["", "a_", "b_", "../../up_", "/tmp/x_", "\x1b[31m_", "ä b_", "CON_", "x" * 300 + "_"])
KEYS = st.one_of(
    st.builds("{}{}".format, NAMES, st.sampled_from(PARTS)), st.just("classes"), st.text(min_size=1, max_size=8)
)
KINDS = st.sampled_from(["f4", "f8", "f2", "u1", "i8", "u8", "?", "U3", "S3", "c8", "M8[s]", "V4", "f4", "i8"])
SHAPES = st.one_of(
    st.sampled_from([(6, 12), (6,), (6, 8, 8, 3), (6, 8, 8), (0, 12), (), (6, 8, 8, 4), (1, 12)]),
    st.lists(st.integers(0, 5), max_size=4).map(tuple),
)
DAMAGE = st.one_of(st.just([]), st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=4)), max_size=4))


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    kind, shape = np.dtype(draw(KINDS)), draw(SHAPES)
    if draw(st.booleans()):
        with np.errstate(all="ignore"):
            return np.random.default_rng(draw(st.integers(0, 9))).integers(0, 4, shape).astype("i8").astype(kind.str)
    size = int(np.prod(shape)) * kind.itemsize
    seed = draw(st.integers(0, 99))
    return np.frombuffer(np.random.default_rng(seed).bytes(size), kind).reshape(shape)


WHOLE = {
    "features": {f"{name}_features": np.eye(12, dtype=np.float32)[:9] for name in "ab"},
    "images": {f"{name}_images": np.full((9, 8, 8, 3), 99, np.uint8) for name in "ab"},
}
for kind in WHOLE:
    WHOLE[kind] |= {f"{name}_labels": np.arange(9) % 3 for name in "ab"}
CUTS = st.one_of(st.just(1.0), st.just(1.0), st.floats(0, 1))


@given(st.data())
def test_npz_files(server, models, tmp_path_factory, data):
    pairs = data.draw(st.lists(st.tuples(KEYS, arrays()), min_size=1, max_size=6))
    if kind := data.draw(st.sampled_from(["", "features", "images"])):  # whole, but for a few
        other = [(key if data.draw(st.booleans()) else f"a_{kind}", array) for key, array in pairs]
        pairs = [*WHOLE[kind].items(), *other[: data.draw(st.integers(0, 2))]]
    method = data.draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as file:
        for key, array in dict(pairs).items():
            with suppress(UnicodeEncodeError, ValueError, TypeError), file.open(f"{key}.npy", "w") as out:
                np.lib.format.write_array(out, array, allow_pickle=False)
    with place(tmp_path_factory.getbasetemp()) as folder:
        path = folder / "data" / "x.npz"
        path.write_bytes(damaged(content.getvalue(), data.draw(DAMAGE), data.draw(CUTS)))
        name, kind = (
            data.draw(st.sampled_from(list(COMMANDS))),
            kind or data.draw(st.sampled_from(["features", "images"])),
        )
        do(server, name, f"{path}#a" if name in OF_ONE else path, models, kind, folder / "out")


WORDS = st.sampled_from(
    ["a/0.png", "b/0.png", "c/1.png", "../../x.png", "/etc/x.png", "nowhere.png", "0", "1", "7", "9" * 20, "-1",
     "٣", "path", "label", "image", "class", ",", ";", "\t", '"', "\n", "\n", "\r", "\0", " ", "=1", "ä", "\u2028"]
)  # fmt: skip


@given(st.data())
def test_lists(server, models, tmp_path_factory, data):
    words = data.draw(st.lists(WORDS, max_size=30))
    text = data.draw(st.sampled_from(["", "path,label\n", "a/0.png 0\nb/0.png 1\n", "path\n"])) + "".join(words)
    with place(tmp_path_factory.getbasetemp()) as folder:
        for name in "abc":
            (folder / "data" / name).mkdir()
            for number in range(2):
                (folder / "data" / name / f"{number}.png").write_bytes(image())
        path = folder / "data" / data.draw(st.sampled_from(["x.txt", "x.csv"]))
        path.write_bytes(damaged(text.encode(), data.draw(DAMAGE), 1.0))
        do(server, data.draw(st.sampled_from(OF_IMAGES)), path, models, "images", folder / "out")


@given(st.data())
def test_images(server, models, tmp_path_factory, data):
    with place(tmp_path_factory.getbasetemp()) as folder:
        (folder / "data" / "a").mkdir()
        for number in range(data.draw(st.integers(1, 4))):
            kind = data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"]))
            mode = data.draw(st.sampled_from(["RGB", "L", "1", "P", "RGBA", "CMYK", "I;16", "F"]))
            content = io.BytesIO()
            with suppress(OSError, ValueError, KeyError):
                Image.new(mode, (data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40)))).save(content, kind)
            wrong = damaged(content.getvalue(), data.draw(DAMAGE), data.draw(CUTS))
            ending = data.draw(st.sampled_from([".png", ".jpg", ".tif", ".gif"]))
            (folder / "data" / "a" / f"{number}{ending}").write_bytes(wrong)
        name = data.draw(st.sampled_from(OF_IMAGES))
        do(server, name, folder / "data", models, "images", folder / "out")


PIECES = st.sampled_from(
    [b"a", b"b", b"train", b"test", b"images", b"0.png", b"1.JPG", b"x.txt", b".hidden", b"\xff", b"\x1b[1m", b"n\nl",
     b"__MACOSX", b"Thumbs.db", b"image_list.txt", b"a.png", b"runs", b"amazon", b"dslr", b"webcam", b"w" * 200]
)  # fmt: skip
THINGS = st.sampled_from(["image", "image", "image", "folder", "empty", "text", "pipe", "link"])
TARGETS = st.sampled_from(
    ["/", "..", ".", "/dev/zero", "/etc/passwd", "nowhere", "a", "b", "../a", "0.png", "../../.."]
)


@given(st.data())
def test_folders(server, models, tmp_path_factory, data):
    with place(tmp_path_factory.getbasetemp()) as folder:
        root = folder / "data"
        for _ in range(data.draw(st.integers(1, 12))):
            path = os.path.join(os.fsencode(root), *data.draw(st.lists(PIECES, min_size=1, max_size=4)))
            with suppress(OSError):  # a file where a folder would have to be
                os.makedirs(os.path.dirname(path), exist_ok=True)
                inside = os.path.realpath(path).startswith(os.fsencode(os.path.realpath(root)))
                if inside and not os.path.lexists(path):  # nothing may be put into a pipe
                    put(Path(os.fsdecode(path)), data)
        do(server, data.draw(st.sampled_from(list(COMMANDS))), root, models, "images", folder / "out")


def put(path: Path, data: st.DataObject) -> None:
    match data.draw(THINGS):
        case "image":
            path.write_bytes(image())
        case "folder":
            path.mkdir()
        case "empty":
            path.touch()
        case "text":
            path.write_text("a/0.png 0\n")
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(data.draw(TARGETS))
