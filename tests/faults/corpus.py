"""What once did harm, hung, filled memory or ended in a traceback; each function makes one below a folder.

`CORPUS` has data, `MODELS` and `RUNS` change a model or run folder that is whole, `IMPORTS` make a file to import and
`WORDS` are words of a command. A case that the fuzzer finds is added here when it is mended.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from making import DEEP, DIGITS, as_json
from PIL import Image

Case = Callable[[Path], Path]
CORPUS: dict[str, Case] = {}
ROWS = np.ones((6, 12), np.float32)
LABELS = np.arange(6) % 3


def case(make: Case) -> Case:
    """Put a function into the corpus under its name."""
    CORPUS[make.__name__] = make
    return make


def image(side: int = 8) -> bytes:
    """A small PNG."""
    out = io.BytesIO()
    Image.fromarray(np.full((side, side, 3), 99, np.uint8)).save(out, "PNG")
    return out.getvalue()


def png(width: int, height: int) -> bytes:
    """A PNG that claims a size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def site(folder: Path) -> Path:
    """Three classes of images."""
    for name in "abc":
        (folder / "site" / name).mkdir(parents=True)
        for number in range(3):
            (folder / "site" / name / f"{number}.png").write_bytes(image())
    return folder / "site"


def npz(folder: Path, **arrays: object) -> Path:
    np.savez(folder / "x.npz", **arrays)
    return folder / "x.npz"


def members(folder: Path, method: int = zipfile.ZIP_DEFLATED, **contents: bytes) -> Path:
    with zipfile.ZipFile(folder / "x.npz", "w", method) as file:
        for name, content in contents.items():
            file.writestr(f"{name}.npy", content)
    return folder / "x.npz"


def header(shape: object, kind: str = "<f4") -> bytes:
    text = f"{{'descr':'{kind}','fortran_order':False,'shape':{shape}}}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text


# --- arrays -----------------------------------------------------------------------------------------------------------


@case
def a_zip_bomb(folder: Path) -> Path:
    path = folder / "x.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
        file.open("features.npy", "w") as out,
    ):
        out.write(header((600 * 2**18, 1)))
        for _ in range(600):
            out.write(bytes(2**20))
    return path


@case
def a_shape_of_exabytes(folder: Path) -> Path:
    return members(folder, features=header((2**60, 12)))


@case
def a_label_of_2_to_the_63(folder: Path) -> Path:
    return npz(folder, features=ROWS, labels=LABELS.astype(np.uint64) + np.uint64(2**63))


@case
def a_label_of_a_billion(folder: Path) -> Path:
    return npz(folder, features=ROWS, labels=LABELS + 10**9)


@case
def a_misspelt_key(folder: Path) -> Path:
    return npz(folder, a_features=ROWS, a_labels=LABELS, b_feature=ROWS, b_labels=LABELS)


@case
def other_widths(folder: Path) -> Path:
    return npz(folder, a_features=ROWS, a_labels=LABELS, b_features=ROWS[:, :5], b_labels=LABELS)


@case
def a_path_as_a_key(folder: Path) -> Path:
    return npz(folder, **{"../../ESCAPED_features": ROWS, "../../ESCAPED_labels": LABELS, "b_features": ROWS})


@case
def a_key_that_steers_the_terminal(folder: Path) -> Path:
    return npz(folder, **{"\x1b[2J\n_features": ROWS, "\x1b[2J\n_labels": LABELS})


@case
def classes_without_a_dimension(folder: Path) -> Path:
    return npz(folder, features=ROWS, labels=LABELS, classes=np.array("abc"))


@case
def labels_that_are_bytes(folder: Path) -> Path:
    return npz(folder, features=ROWS, labels=np.array([b"a", b"\xff"] * 3))


@case
def a_single_array(folder: Path) -> Path:
    np.save(folder / "x.npy", ROWS)
    return (folder / "x.npy").rename(folder / "x.npz")


@case
def corrupt_deflate(folder: Path) -> Path:
    np.savez_compressed(folder / "x.npz", features=np.random.default_rng(0).normal(size=(90, 12)))
    data = bytearray((folder / "x.npz").read_bytes())
    data[300:330] = b"\xff" * 30
    (folder / "x.npz").write_bytes(bytes(data))
    return folder / "x.npz"


@case
def packed_by_lzma(folder: Path) -> Path:
    return members(folder, zipfile.ZIP_LZMA, features=header((6, 12)) + bytes(4 * 72))


@case
def brackets_in_a_header(folder: Path) -> Path:
    return members(folder, features=header("(" * 3000))


@case
def values_that_overflow(folder: Path) -> Path:
    return npz(folder, features=np.full((6, 12), 1e300), labels=LABELS)


# --- images -----------------------------------------------------------------------------------------------------------


@case
def an_image_of_144_megapixels(folder: Path) -> Path:
    (site(folder) / "a" / "x.png").write_bytes(png(12_000, 12_000))
    return folder / "site"


@case
def an_image_that_claims_terapixels(folder: Path) -> Path:
    (site(folder) / "a" / "x.png").write_bytes(png(2**20, 2**20))
    return folder / "site"


@case
def a_pipe(folder: Path) -> Path:
    os.mkfifo(site(folder) / "a" / "x.png")
    return folder / "site"


@case
def a_device(folder: Path) -> Path:
    (site(folder) / "a" / "x.png").symlink_to("/dev/zero")
    return folder / "site"


@case
def postscript(folder: Path) -> Path:
    (site(folder) / "a" / "x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    return folder / "site"


@case
def a_file_of_a_terabyte(folder: Path) -> Path:
    (site(folder) / "a" / "x.png").touch()
    os.truncate(folder / "site" / "a" / "x.png", 10**12)
    return folder / "site"


# --- folders and lists ------------------------------------------------------------------------------------------------


@case
def a_link_to_the_whole_system(folder: Path) -> Path:
    (site(folder) / "d").symlink_to("/")
    return folder / "site"


@case
def a_class_that_is_not_mounted(folder: Path) -> Path:
    (site(folder) / "d").symlink_to(folder / "nowhere")
    return folder / "site"


@case
def a_loop_of_links(folder: Path) -> Path:
    (site(folder) / "a" / "x").symlink_to("..")
    (folder / "site" / "b" / "y").symlink_to("y")
    return folder / "site"


@case
def names_that_are_no_text(folder: Path) -> Path:
    os.rename(site(folder) / "a", os.fsencode(folder) + b"/site/\xff\x1b[31m")
    (folder / "site" / "b" / "0.png").rename(os.fsdecode(os.fsencode(folder) + b"/site/b/\xfe\n.png"))
    return folder / "site"


@case
def a_list_that_leads_out(folder: Path) -> Path:
    (site(folder) / "x.txt").write_text("a/0.png 0\n../../../../../../etc/hostname.png 1\n")
    return folder / "site" / "x.txt"


@case
def a_list_with_long_numbers(folder: Path) -> Path:
    (site(folder) / "x.txt").write_text(f"a/0.png {'9' * 5000}\n")
    return folder / "site" / "x.txt"


@case
def a_table_with_long_numbers(folder: Path) -> Path:
    (site(folder) / "x.csv").write_text(f"path,label\na/0.png,{'9' * 5000}\nb/0.png,0")
    return folder / "site" / "x.csv"


@case
def a_table_with_two_columns_of_one_name(folder: Path) -> Path:
    (site(folder) / "x.csv").write_text("path,label,label\na/0.png,a,b\n")
    return folder / "site" / "x.csv"


@case
def a_list_with_nothing_in_its_names(folder: Path) -> Path:
    (site(folder) / "x.txt").write_text("a/0.png 0\na\0/b.png 1\nb\0.png 0\n")
    return folder / "site" / "x.txt"


@case
def formulas(folder: Path) -> Path:
    (site(folder) / "a" / "0.png").rename(folder / "site" / "a" / "=HYPERLINK(A1).png")
    return folder / "site"


# --- model folders ----------------------------------------------------------------------------------------------------

Change = Callable[[Path], object]
MODELS: dict[str, Change] = {}
RUNS: dict[str, Change] = {}


def model(change: Change) -> Change:
    """Put a function into the corpus of model folders."""
    MODELS[change.__name__] = change
    return change


def run(change: Change) -> Change:
    """Put a function into the corpus of run folders."""
    RUNS[change.__name__] = change
    return change


def described(folder: Path, **values: object) -> None:
    """Change what a JSON file says; a name such as a__b is b within a."""
    path = folder / "model.json" if (folder / "model.json").exists() else folder / "config.json"
    whole = json.loads(path.read_bytes())
    for name, value in values.items():
        *groups, last = name.split("__")
        part = whole
        for group in groups:
            part = part[group]
        part[last] = value
    path.write_bytes(as_json(whole))


@model
def a_format_of_5000_digits(folder: Path) -> None:
    described(folder, format=DIGITS)


@model
def classes_in_3000_brackets(folder: Path) -> None:
    described(folder, classes=DEEP)


@model
def classes_that_are_a_number(folder: Path) -> None:
    described(folder, classes=3)


@model
def a_network_of_exabytes(folder: Path) -> None:
    described(folder, architecture__bottleneck=2**60)


@model
def an_image_of_no_size(folder: Path) -> None:
    described(folder, preprocessing__size=None)


@model
def deviations_of_zero(folder: Path) -> None:
    described(folder, preprocessing__std=[0.0, 0.0, 0.0])


@model
def a_history_of_texts(folder: Path) -> None:
    described(folder, lineage=["adapted", "twice"])


@model
def a_step_that_steers_the_terminal(folder: Path) -> None:
    described(folder, lineage=[{"step": "source", "data": "\x1b[2J\nx", "domain": "\u202eten"}])


@model
def hashes_by_number(folder: Path) -> None:
    described(folder, sha256=[1, 2])


@model
def a_card_that_is_a_pipe(folder: Path) -> None:
    (folder / "README.md").unlink()
    os.mkfifo(folder / "README.md")


@model
def weights_that_are_a_pipe(folder: Path) -> None:
    (folder / "head.safetensors").unlink()
    os.mkfifo(folder / "head.safetensors")


@model
def weights_of_a_terabyte(folder: Path) -> None:
    os.truncate(folder / "head.safetensors", 10**12)


@model
def a_profile_that_is_a_number(folder: Path) -> None:
    path = folder / "profile-0.safetensors"
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + size])
    head["__metadata__"] = {"profile": 7}
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])


# --- run folders ------------------------------------------------------------------------------------------------------


@run
def a_seed_of_5000_digits(folder: Path) -> None:
    described(folder, seed=DIGITS)


@run
def settings_in_3000_brackets(folder: Path) -> None:
    described(folder, settings=DEEP)


@run
def no_domains(folder: Path) -> None:
    described(folder, domains=[])


@run
def an_empty_embedding(folder: Path) -> None:
    for path in folder.glob("embedding/*"):
        path.write_bytes(b"")


@run
def features_beyond_single_precision(folder: Path) -> None:
    for path in folder.glob("embedding/*"):
        with np.load(path) as file:
            arrays = dict(file)
        np.savez(path, **(arrays | {"features": arrays["features"].astype(float) * 1e300}))


@cache
def bomb() -> bytes:
    """An array of 300 MiB in 300 KiB."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
        file.open("features.npy", "w") as features,
    ):
        features.write(header((300 * 2**10, 2**8)))
        for _ in range(300):
            features.write(bytes(2**20))
    return out.getvalue()


@run
def an_embedding_that_unpacks_a_thousandfold(folder: Path) -> None:
    for path in folder.glob("embedding/*"):
        path.write_bytes(bomb())


@run
def an_embedding_that_claims_exabytes(folder: Path) -> None:
    for path in folder.glob("embedding/*"):
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("features.npy", header((2**60, 2)))


@run
def an_embedding_that_is_a_pipe(folder: Path) -> None:
    for path in folder.glob("embedding/*"):
        path.unlink()
        os.mkfifo(path)


@run
def records_of_a_terabyte(folder: Path) -> None:
    os.truncate(folder / "records.jsonl", 10**12)


@run
def records_that_are_a_pipe(folder: Path) -> None:
    for name in ("records.jsonl", "done.json"):
        (folder / name).unlink()
    os.mkfifo(folder / "records.jsonl")


@run
def more_correct_images_than_images(folder: Path) -> None:
    lines = (folder / "records.jsonl").read_text().splitlines()
    facts = [json.loads(line) for line in lines]
    wrong = [fact | {"correct": [10**9] * len(fact["correct"])} if "correct" in fact else fact for fact in facts]
    (folder / "records.jsonl").write_text("".join(json.dumps(fact) + "\n" for fact in wrong))


@run
def a_verdict_of_numbers(folder: Path) -> None:
    (folder / "verdict").mkdir(exist_ok=True)
    (folder / "verdict" / "verdict.json").write_text("[1, 2]")


@run
def an_end_that_is_a_folder(folder: Path) -> None:
    (folder / "done.json").unlink()
    (folder / "done.json").mkdir()


@run
def a_lock_that_is_a_folder(folder: Path) -> None:
    (folder / "done.json").unlink()
    folder.with_name(f"{folder.name}.lock").mkdir()


# --- files to import --------------------------------------------------------------------------------------------------


class Evil:
    """What is done when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


def evil(folder: Path) -> bytes:
    """A pickle that would write a file."""
    return pickle.dumps({"weight": Evil(folder / "ESCAPED")})


# --- words ------------------------------------------------------------------------------------------------------------

# VECTORS and MODEL stand for data and a model folder.
WORDS = {
    "a rate of 5,000 digits": ("run", "VECTORS", "--set", f"adapt.lr={'9' * 5000}"),
    "a rate in 3,000 brackets": ("run", "VECTORS", "--set", f"adapt.lr={'[' * 3000}"),
    "a setting in 3,000 tables": ("run", "VECTORS", "--set", f"{'a.' * 3000}a=1"),
    "a seed of 5,000 digits": ("run", "VECTORS", "--seed", "9" * 5000),
    "a precision of 5,000 digits": ("adapt", "MODEL", "VECTORS", "--precision", "9" * 5000, "--to", "new"),
    "a device that holds no numbers": ("profile", "MODEL", "VECTORS#one", "--to", "new", "--device", "meta"),
    "more threads than a number has room for": ("predict", "MODEL", "VECTORS#one", "--threads", "9" * 30),
    "a name of two lines": ("compare", "a\nb", "c"),
    "a name that is no text": ("predict", "MODEL", "\udcff"),
    "a name that turns around": ("predict", "MODEL", "\u202ex"),
    "a repository that is not there": ("predict", "hf:org/none", "VECTORS"),
    "data that are not there": ("run", "hf:org/none"),
    "a name that leaves the hub": ("model", "hf:../../up"),
}
