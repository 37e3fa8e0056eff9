"""What the made-up cases of all kinds share: a place for each, and ways to damage what is whole."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import random
import shutil
import stat
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

NUMBERS = itertools.count()
# At any seed the same numbers, so a case is drawn as one number and made by plain code.
SEEDS = st.integers(0, 2**32 - 1).map(random.Random)


@contextmanager
def place(root: Path) -> Iterator[Path]:
    """A folder for one case, which goes with it; nothing beside it may change."""
    folder = root / str(next(NUMBERS))
    (folder / "deep" / "data").mkdir(parents=True)
    (folder / "deep" / "out").mkdir()
    try:
        yield folder / "deep"
        assert os.listdir(folder) == ["deep"]
        assert sorted(os.listdir(folder / "deep")) == ["data", "out"]
        left = [path for path in (folder / "deep" / "out").rglob("*") if path.name.endswith((".tmp", ".old"))]
        assert left == []
    finally:
        shutil.rmtree(folder)


def damaged(content: bytes, places: list[tuple[float, bytes]], cut: float) -> bytes:
    """Other bytes at some places, given as shares of the length, and an end before the end."""
    data = bytearray(content)
    for where, value in places:
        at = int(where * len(data))
        data[at : at + len(value)] = value
    return bytes(data[: int(cut * len(data))])


def hurt(content: bytes, rng: random.Random) -> bytes:
    """The same by a random generator; half of all changes are at the front, where files say what they are."""
    places = [
        (rng.random() * rng.choice((1, 200 / max(len(content), 200))), rng.randbytes(rng.randint(1, 4)))
        for _ in range(rng.randint(0, 4))
    ]
    return damaged(content, places, rng.choice((1.0, 1.0, rng.random())))


# --- values that files may hold ---------------------------------------------------------------------------------------

DIGITS, DEEP = "@digits@", "@deep@"  # stand for what Python itself would not write
VALUES = (
    None, True, False, 0, 1, -1, 3, 0.5, -0.5, 2**31, 2**63, -(2**63), 10**30, 1e9, 1e300, float("nan"), float("inf"),
    "", "x", "one", "none", "../../up", "/nowhere/passwd", "a/b", "\x1b[31m\n", "\ud800", "=1+1", "<script>",
    "x" * 5000, "nan", "1", "2026-99-99", "hf:org/none", "identity:99999999999", "timm/none", "resnet18", DIGITS, DEEP,
    [], {}, [None], [[]], ["one"], [1, 2, 3], [1e300] * 3, ["a", "a", "a"], {"x": None}, {"": {}}, {"step": 1}, [{}],
    list(range(3000)),
)  # fmt: skip


def changed(tree: Any, rng: random.Random, most: int = 3) -> Any:
    """A JSON value in which up to so many parts are something else, gone, doubled, or in each other's place."""
    holder = [json.loads(json.dumps(tree))]
    for _ in range(rng.randint(1, most)):
        where, key = rng.choice(list(_parts(holder)))
        match rng.choice(("value", "value", "value", "gone", "twice", "exchanged", "name")):
            case "gone" if where is not holder:
                del where[key]
            case "twice" if isinstance(where, list) and where is not holder:
                where.insert(key, where[key])
            case "exchanged":
                other, at = rng.choice(list(_parts(holder)))
                where[key] = json.loads(json.dumps(other[at]))
            case "name" if isinstance(where, dict):
                where[rng.choice(("", "x", key.upper(), "../x", "\x1b[31m", "9" * 400))] = where.pop(key)
            case _:
                where[key] = json.loads(json.dumps(rng.choice(VALUES)))  # a copy, which may be changed next
    return holder[0]


def _parts(tree: Any) -> Iterator[tuple[Any, Any]]:
    for key in tree if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _parts(tree[key])


def as_json(value: Any) -> bytes:
    """It as a file; numbers of 5,000 digits and 3,000 brackets where a value stands for them."""
    text = json.dumps(value)
    return text.replace(f'"{DIGITS}"', "9" * 5000).replace(f'"{DEEP}"', "[" * 3000 + "]" * 3000).encode()


def change_json(path: Path, rng: random.Random, lines: bool = False) -> None:
    """Change the values of a JSON file, or of one with an object in each line."""
    content = path.read_bytes()
    if not lines:
        path.write_bytes(as_json(changed(json.loads(content), rng)))
        return
    facts = [as_json(line) for line in changed([json.loads(line) for line in content.splitlines()], rng) or ()]
    path.write_bytes(b"".join(line + b"\n" for line in facts))


def change_tensors(path: Path, rng: random.Random) -> None:
    """Change what a safetensors file says of its tensors, their numbers, or its bytes."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    head, body = json.loads(content[8 : 8 + size]), bytearray(content[8 + size :])
    match rng.choice(("head", "numbers", "shapes", "metadata", "bytes")):
        case "head":
            head = changed(head, rng)
        case "numbers":  # not finite, huge, or anything
            wrong = rng.choice((struct.pack("<f", float("nan")), struct.pack("<f", 3e38), struct.pack("<d", 1e300)))
            for _ in range(rng.choice((1, 3, len(body) // 4))):
                at = 4 * rng.randrange(max(len(body) // 4, 1))
                body[at : at + len(wrong)] = wrong[: len(body) - at]
        case "shapes":  # of tensors that still fill the file
            name = rng.choice(sorted(head))
            if "shape" in head[name]:
                head[name]["shape"] = rng.choice((head[name]["shape"][::-1], [*head[name]["shape"], 1], [-1], []))
        case "metadata" if "profile" in head.get("__metadata__", {}):
            facts = json.loads(head["__metadata__"]["profile"])
            head["__metadata__"]["profile"] = as_json(changed(facts, rng)).decode()
        case _:
            path.write_bytes(hurt(content, rng))
            return
    text = as_json(head)
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(body))


def change_arrays(path: Path, rng: random.Random) -> None:
    """Change the arrays of an .npz file."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in file}
    key = rng.choice(sorted(arrays))
    other = (
        np.zeros(()), np.zeros((0, 3)), arrays[key].ravel(), arrays[key][:1], np.full(arrays[key].shape, np.nan),
        np.array(["a"]), arrays[key].astype(np.float64) * 1e300, -np.ones(arrays[key].shape, int), None,
    )  # fmt: skip
    new = rng.choice(other)
    arrays = {name: value for name, value in (arrays | {key: new}).items() if value is not None}
    out = io.BytesIO()
    with np.errstate(all="ignore"):
        np.savez(out, **arrays)
    path.write_bytes(out.getvalue())


def change_file(path: Path, rng: random.Random) -> None:
    """Change what a file says, as its kind knows it; or its bytes; or put something else in its place."""
    how = rng.choice(("values", "values", "values", "values", "thing", "bytes"))
    if how == "thing":
        replace_by_a_thing(path, rng)
        return
    try:
        match path.suffix if how == "values" else "":
            case ".json":
                change_json(path, rng)
            case ".jsonl":
                change_json(path, rng, lines=True)
            case ".safetensors":
                change_tensors(path, rng)
            case ".npz":
                change_arrays(path, rng)
            case _:
                path.write_bytes(hurt(path.read_bytes(), rng))
    except (ValueError, LookupError, TypeError, AttributeError, EOFError, RecursionError, zipfile.BadZipFile):
        # It was changed before.
        path.write_bytes(hurt(path.read_bytes(), rng))


def replace_by_a_thing(path: Path, rng: random.Random) -> None:
    """Put something else in the place of a file: nothing, a folder, a pipe, a device, a link in a circle."""
    content = path.read_bytes()
    path.unlink()
    match rng.choice(("gone", "empty", "folder", "pipe", "device", "circle", "nowhere", "huge", "noise")):
        case "empty":
            path.touch()
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "device":
            try:  # one of its own: the real one shall outlive what writes through a link
                os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
            except OSError:  # root alone may
                os.mkfifo(path)
        case "circle":
            path.symlink_to(path.name)
        case "nowhere":
            path.symlink_to("nowhere")
        case "huge":  # and with nothing in it
            path.write_bytes(content)
            os.truncate(path, 10**12)
        case "noise":
            path.write_bytes(rng.randbytes(rng.choice((7, 900))))


def hashed_again(folder: Path) -> None:
    """Let model.json have the hashes that its files now have, as who means harm would."""
    path = folder / "model.json"
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, LookupError, RecursionError):
        description = json.loads(_content(path))
        for name in description["sha256"]:
            if content := _content(folder / name):
                description["sha256"][name] = hashlib.sha256(content).hexdigest()
        path.write_text(json.dumps(description))


def _content(path: Path) -> bytes:
    """Of a file; nothing of a pipe, which would be waited for, and of a file that claims to be huge."""
    return path.read_bytes() if path.is_file() and path.stat().st_size < 10**6 else b""
