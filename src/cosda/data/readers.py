"""From files to domains: class folders, loose images, image lists. (For arrays see `arrays`.)

Every reader sorts, skips hidden files and whatever is not an image, and returns a `Reading`. The names of
classes come from the folders in which images lie, so that one data set gives the same classes whether it is
read from its folders or from lists.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from cosda.data.decode import is_image
from cosda.data.domain import Domain, Files, Index, everything
from cosda.errors import CosdaError

Layout = Literal["split", "classes", "images", "nothing"]


@dataclass(frozen=True)
class Reading:
    """What a reader found: a domain, and the class list of its labels (empty where it has none)."""

    domain: Domain
    classes: tuple[str, ...] = ()
    is_split: bool = False  # whether the data came with a train and a test part

    @property
    def numbered(self) -> bool:
        """Whether the classes have no names but their numbers."""
        return bool(self.classes) and self.classes == numbers(len(self.classes))

    def with_classes(self, classes: tuple[str, ...]) -> Reading:
        """The same with its labels as positions in another class list, which holds all of its classes."""
        if self.domain.labels is None or classes == self.classes:
            return self
        where = np.array([classes.index(name) for name in self.classes], dtype=np.int64)
        return replace(self, domain=replace(self.domain, labels=where[self.domain.labels]), classes=classes)


def numbers(count: int) -> tuple[str, ...]:
    """The names of classes that have none."""
    return tuple(str(number) for number in range(count))


def plain(name: str) -> str:
    """A name as people recognise it: ``Real World``, ``Real_World`` and ``RealWorld`` are one."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def name_of(path: Path) -> str:
    """The name of a folder or file, also where it is given as ``.`` or ``..``."""
    return Path(os.path.abspath(path)).stem if path.is_file() else Path(os.path.abspath(path)).name


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Say which data could not be read when the system refuses."""
    try:
        yield
    except OSError as error:
        raise CosdaError(f"{path} cannot be read: {error.strerror} ({error.filename}).") from error


def listed(names: Sequence[str], most: int = 6) -> str:
    """The first names of a list, and how many more there are: for a message."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


# --- folders ------------------------------------------------------------------------------------------


def folders_in(folder: Path) -> list[str]:
    """Names of the folders directly in ``folder``, sorted, without hidden ones and leavings of archives."""
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not _hidden(e.name))


def images_below(folder: Path) -> list[str]:
    """Relative names of all images in ``folder`` and its folders, sorted."""
    return sorted(_walk(folder))


def _hidden(name: str) -> bool:
    return name.startswith((".", "__MACOSX"))


def _walk(folder: Path) -> Iterator[str]:
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:  # a link that leads back up
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not _hidden(name)]
        inside = PurePosixPath(Path(place).relative_to(folder).as_posix())
        yield from (str(inside / name) for name in files if is_image(name))


def layout(folder: Path) -> Layout:
    """What lies in a folder: train and test parts, class folders, loose images, or no image at all."""
    base = _base(folder)
    names = folders_in(base)
    if {"train", "test"} <= set(names) and all(layout(base / part) == "classes" for part in ("train", "test")):
        return "split"
    if any(_holds_images(base / name) for name in names):
        return "classes"
    return "images" if next(_walk(base), None) else "nothing"


def read_folder(folder: Path, name: str | None = None) -> Reading:
    """A labelled folder: ``<class>/…``, ``images/<class>/…``, or either in ``train/`` and ``test/``."""
    name = name or name_of(folder)
    match layout(folder):
        case "split":
            return _read_parts(folder, name)
        case "classes":
            base = _base(folder)
            classes = folders_in(base)
            return _reading(name, base, _with_class_folders(base), None, tuple(classes))
    raise CosdaError(f"{folder} has no class folders. Expected {folder.name}/<class>/<images>; {describe(folder)}.")


def read_images(folder: Path, name: str | None = None) -> Reading:
    """All images in a folder and its folders, without labels. One image file is a domain of one."""
    if folder.is_file():
        return _reading(name or name_of(folder), folder.parent, {folder.name: None}, None, ())
    names = images_below(folder)
    if not names:
        raise CosdaError(f"{folder} holds no images; {describe(folder)}.")
    return _reading(name or name_of(folder), folder, dict.fromkeys(names), None, ())


def describe(folder: Path) -> str:
    """What was found in a folder, for an error's text."""
    names = folders_in(folder)
    with os.scandir(folder) as entries:
        files = [entry.name for entry in entries if entry.is_file() and not entry.name.startswith(".")]
    images = sum(map(is_image, files))
    shown = f" ({listed(names)})" if names else ""
    return f"found {len(names)} folders{shown}, {images} images and {len(files) - images} other files"


def _base(folder: Path) -> Path:
    """Office-31 keeps its class folders one level down, in ``images``."""
    deeper = folder / "images"
    return deeper if folders_in(folder) == ["images"] and not _holds_images(deeper) else folder


def _holds_images(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any(is_image(entry.name) for entry in entries)


def _with_class_folders(base: Path, prefix: str = "") -> dict[str, str | None]:
    """Every image's name with its class, the first folder of the name."""
    return {f"{prefix}{name}/{image}": name for name in folders_in(base) for image in images_below(base / name)}


def _read_parts(folder: Path, name: str) -> Reading:
    base = _base(folder)
    parts, classes = {}, set()
    for part in ("train", "test"):
        inner = _base(base / part)
        parts[part] = _with_class_folders(inner, f"{inner.relative_to(base).as_posix()}/")
        classes |= set(folders_in(inner))
    return _reading(name, base, parts["train"], parts["test"], tuple(sorted(classes)))


# --- lists --------------------------------------------------------------------------------------------


def read_list(
    path: Path,
    root: Path | None = None,
    name: str | None = None,
    test: Path | None = None,
    by_folder: bool = True,
) -> Reading:
    """An image list, "path label" per line, or two of them: ``path`` for training and ``test``.

    Paths are relative to ``root``; without it to the list's folder or the one above, wherever they exist.
    Classes take the names of the images' folders, in alphabetical order, where every label has one folder
    and every folder one label; elsewhere, or without ``by_folder``, they are the numbers.
    """
    lists = [_lines(part) for part in (path, test) if part is not None]
    base, spelling = _locate(path, root, list(lists[0]))
    lists = [{_respell(image, spelling): n for image, n in lines.items()} for lines in lists]
    every = {image: number for lines in lists for image, number in lines.items()}
    labels = [number for number in every.values() if number is not None]
    if labels and len(labels) < len(every):
        raise CosdaError(f"{path} has labels on some lines and none on others; give all of them or none.")
    names = _names_of(every) if by_folder and labels else {}
    classes = tuple(sorted(names.values())) or numbers(max(labels, default=-1) + 1)
    parts = [{image: None if n is None else names.get(n, str(n)) for image, n in lines.items()} for lines in lists]
    return _reading(name or path.stem, base, parts[0], parts[1] if test else None, classes)


def _lines(path: Path) -> dict[str, int | None]:
    """Image and label of every line. A last word that is a number is the label: paths may have spaces."""
    entries: dict[str, int | None] = {}
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise CosdaError(f"{path} cannot be read as an image list: {error}.") from None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        *before, last = line.strip().rsplit(maxsplit=1)
        labelled = bool(before) and last.isdecimal()
        image = (before[0] if labelled else line.strip()).replace("\\", "/")
        label = int(last) if labelled else None
        if not is_image(PurePosixPath(image).name):
            raise CosdaError(f'{path}, line {number}: expected "path label" with an image\'s path, found "{line}".')
        if entries.setdefault(image, label) != label:
            raise CosdaError(f"{path}, line {number}: {image} stands there twice, with two labels.")
    if not entries:
        raise CosdaError(f'{path} is empty; expected "path label" on every line.')
    return entries


def _locate(path: Path, root: Path | None, names: list[str]) -> tuple[Path, dict[str, str]]:
    """The folder to which a list's paths are relative, and how it spells the first folder of a path there.

    Lists and images often come from two sources that agree on all but ``Real_World`` and ``Real World``.
    """
    candidates = [root] if root else [path.parent, path.parent.parent]
    probes = [names[0], names[len(names) // 2], names[-1]]
    for candidate in candidates:
        known = {plain(folder): folder for folder in folders_in(candidate)}
        heads = {PurePosixPath(probe).parts[0] for probe in probes}
        respelled = {head: known[plain(head)] for head in heads if plain(head) in known}
        for spelling in ({}, respelled):
            if any((candidate / _respell(probe, spelling)).is_file() for probe in probes):
                return candidate, spelling
    looked = " and ".join(str(candidate) for candidate in candidates)
    raise CosdaError(
        f"the images of {path} were not found: its first entry is {names[0]}, looked for below {looked}. "
        f"Put the list beside the folders that it names."
    )


def _respell(image: str, spelling: Mapping[str, str]) -> str:
    head, slash, rest = image.partition("/")
    return spelling.get(head, head) + slash + rest


def _names_of(labels: Mapping[str, int | None]) -> dict[int, str]:
    """Label -> folder name, or nothing unless the two correspond one to one."""
    pairs = {(label, PurePosixPath(image).parent.name) for image, label in labels.items()}
    names = {label: name for label, name in pairs if label is not None}
    return names if len(pairs) == len(names) == len(set(names.values())) and "" not in names.values() else {}


def _reading(
    name: str,
    root: Path,
    train: Mapping[str, str | None],
    test: Mapping[str, str | None] | None,
    classes: tuple[str, ...],
) -> Reading:
    """Put files with their class names together, in sorted order."""
    entries = {**train, **(test or {})}
    if not entries:
        raise CosdaError(f"{root} holds class folders but no images; {describe(root)}.")
    conflicts = [file for file in test or {} if file in train and train[file] != entries[file]]
    if conflicts:
        raise CosdaError(f"{conflicts[0]} in {root} has one label for training and another for testing.")
    names = tuple(sorted(entries))
    index = {label: position for position, label in enumerate(classes)}
    labels = np.array([index[entries[file] or ""] for file in names], np.int64) if classes else None

    def positions(part: Mapping[str, str | None]) -> Index:
        return np.array([i for i, file in enumerate(names) if file in part], np.int64)

    every = everything(len(names))
    split = (every, every) if test is None else (positions(train), positions(test))
    return Reading(Domain(name, Files(root, names), labels, *split), classes, test is not None)
