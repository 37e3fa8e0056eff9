"""Files and folders that are written whole or not at all, and names that follow from content. No torch."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def digest(value: Any) -> str:
    """Ten hexadecimal digits that name a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def write_atomically(path: str | Path, content: bytes | str | Callable[[Path], object]) -> Path:
    """Write a file or a folder so that a reader, also after a kill, sees the old one or the whole new one.

    Args:
        path: where it is to be. Folders above it are made.
        content: the bytes or the text of a file; or a function that makes a file or a folder at the path that it is
            given, which lies beside ``path`` until all of it is on the disk.
    """
    path = Path(path)
    new, old = (path.with_name(f".{path.name}.{os.getpid()}.{suffix}") for suffix in ("tmp", "old"))
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove(new)  # of a killed process that had the same number
    try:
        if callable(content):
            content(new)
        else:
            new.write_bytes(content.encode() if isinstance(content, str) else content)
        for file in [new, *new.rglob("*")]:
            if file.is_file():
                _flush(file)
        _replace(path, new, old)
    finally:
        _remove(new)
    return path


def _flush(file: Path) -> None:
    """Have the bytes on the disk before the rename says that they are."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _replace(path: Path, new: Path, old: Path) -> None:
    """Rename what is finished. A folder cannot replace another one at once, so the old one is put aside first."""
    if not (new.is_dir() and path.exists()):
        os.replace(new, path)
        return
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise
    _remove(old)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` atomically as JSON."""
    write_atomically(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"adapt": {"lr": 1}}`` -> ``{"adapt.lr": 1}``, in the order of the tree."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
