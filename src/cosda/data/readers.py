"""From folders to domains: class folders, or images at any depth. (For lists see `lists`, for arrays `arrays`.)

Every reader sorts, counts the files that are no images, and returns a `Reading`. The names of classes come from the
folders in which images lie, so that one data set gives the same classes whether it is read from its folders or from
lists.
"""

from __future__ import annotations

import errno
import os
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cosda.data.decode import is_image
from cosda.data.domain import Domain, Files, Index, Undecoded, everything, part_of
from cosda.data.fence import Fence
from cosda.data.limits import FOLDERS_DEEP, check_classes
from cosda.errors import CosdaError, nearest
from cosda.files import as_text

Layout = Literal["split", "classes", "images", "nothing"]

UNNAMED = "data"  # the name of a domain that comes from no file
_LEAVINGS = ("thumbs.db", "desktop.ini")  # of systems; hidden files such as .DS_Store are passed over anyway


@dataclass(frozen=True)
class Reading:
    """What a reader found: a domain, and the class list of its labels (empty where it has none)."""

    domain: Domain
    classes: tuple[str, ...] = ()
    is_split: bool = False  # whether the data came with a train and a test part
    shared: bool = False  # whether the class list is that of a whole table, of which a domain may lack some
    notes: tuple[str, ...] = ()  # how it was read, for `doctor`

    def __post_init__(self) -> None:
        check_classes(len(self.classes), self.domain.name)
        object.__setattr__(self, "classes", tuple(map(as_text, self.classes)))
        if twice := [name for name, count in Counter(self.classes).items() if count > 1]:
            raise CosdaError(f"{self.domain.name}: the class {listed(twice)} has its name twice; give each its own.")

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

    def with_labels(self, labels: NDArray[Any], where: str) -> Reading:
        """The same with a label for each image: whole numbers from 0 up, or names."""
        positions, classes = label_positions(labels, where)
        return replace(self, domain=replace(self.domain, labels=positions), classes=classes)


def label_positions(labels: NDArray[Any], where: str) -> tuple[Index, tuple[str, ...]]:
    """Labels as positions in a class list, and that list: the sorted names, or the numbers up to the highest.

    Raises:
        CosdaError: they are neither; it says ``where``.
    """
    labels = as_texts(labels, where)
    if labels.dtype.kind == "U":
        names, positions = np.unique(labels, return_inverse=True)
        return positions.astype(np.int64), tuple(str(name) for name in names)
    if labels.dtype.kind not in "iu" or not labels.size or labels.min() < 0:
        raise CosdaError(f"{where}: labels must be whole numbers from 0 up, or names.")
    check_classes(int(labels.max()) + 1, where)
    return labels.astype(np.int64), numbers(int(labels.max()) + 1)


def as_texts(array: NDArray[Any], where: str) -> NDArray[Any]:
    """Names that are bytes as text; other arrays as they are.

    Raises:
        CosdaError: they are no text; it says ``where``.
    """
    try:
        if array.dtype.kind == "S":
            array = np.char.decode(array, "utf-8")
        if array.dtype.kind == "U":
            array.tolist()  # numpy stores numbers of which some are no letters
    except ValueError as error:
        raise CosdaError(f"{where}: names must be text in UTF-8: {error}.") from None
    return array


def by_domain(reading: Reading, names: Sequence[str]) -> list[Reading]:
    """A reading for each name of a domain, of the images that have it; in the order in which they first occur."""
    groups: dict[str, list[int]] = defaultdict(list)
    for position, name in enumerate(names):
        groups[name].append(position)
    whole = reading.domain
    readings = []
    for name, positions in groups.items():
        moved = np.full(len(whole), -1, np.int64)
        moved[positions] = np.arange(len(positions))
        train, test = (moved[part][moved[part] >= 0] for part in (whole.train, whole.test))
        items = (
            part_of(whole.items, positions) if isinstance(whole.items, Undecoded) else whole.items[np.array(positions)]
        )
        labels = None if whole.labels is None else whole.labels[positions]
        readings.append(replace(reading, domain=Domain(name, items, labels, train, test), shared=True))
    return readings


def called(name: str, readings: Sequence[Reading], where: str) -> Reading:
    """The domain of that name among several."""
    names = [reading.domain.name for reading in readings]
    if name not in names:
        raise CosdaError(f"{where} has no domain '{name}'.{nearest(name, names)} It has: {listed(names)}.")
    return readings[names.index(name)]


def numbers(count: int) -> tuple[str, ...]:
    """The names of classes that have none."""
    return tuple(str(number) for number in range(count))


def name_of(path: Path) -> str:
    """The name of a folder or file, also where it is given as ``.`` or ``..``."""
    return Path(os.path.abspath(path)).stem if path.is_file() else Path(os.path.abspath(path)).name


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Say which data could not be read when the system refuses."""
    try:
        yield
    except OSError as error:
        where = f" ({as_text(str(error.filename))})" if error.filename else ""
        raise CosdaError(f"{as_text(str(path))} cannot be read: {error.strerror or error}{where}.") from error


def listed(names: Sequence[str], most: int = 6) -> str:
    """The first names of a list, and how many more there are: for a message."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(as_text, names[:most])) + more


def folders_in(folder: Path) -> list[str]:
    """Names of the folders directly in ``folder``, sorted, without hidden ones and leavings of archives."""
    with os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not _hidden(e.name))


def files_below(folder: Path, fence: Fence | None = None) -> list[str]:
    """Relative names of all files in ``folder`` and its folders, sorted; hidden ones and leavings are passed over.

    Links that lead out of the fence, which is the folder itself where none is given, are an error; so is a folder that
    cannot be read, and a link to nothing: it may have been a class.
    """
    return sorted(_walk(folder, fence or Fence(folder)))


def check_links(folder: Path) -> None:
    """An error for links directly in a folder that lead to nothing; what they stood for would be missing."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink() and not _passed_over(entry.name) and not os.path.exists(entry.path):
                raise _dangling(entry)


def _hidden(name: str) -> bool:
    return name.startswith((".", "__MACOSX"))


def _passed_over(name: str) -> bool:
    return _hidden(name) or name.lower() in _LEAVINGS


def _dangling(entry: os.DirEntry[str]) -> CosdaError:
    target = as_text(os.readlink(entry.path))
    return CosdaError(f"{as_text(entry.path)} is a link to {target}, which is not there. Repair or remove it.")


def _walk(folder: Path, fence: Fence, inside: str = "", above: tuple[str, ...] = ()) -> Iterator[str]:
    real = fence.check(folder)
    if real in above:  # a link that leads back up
        return
    if len(above) == FOLDERS_DEEP:
        raise CosdaError(f"{as_text(str(folder))}: folders lie more than {FOLDERS_DEEP} deep; give one further down.")
    if not os.access(folder, os.R_OK | os.X_OK):  # names that can be listed may still lead to nothing
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    with os.scandir(folder) as entries:
        for entry in entries:
            if _passed_over(entry.name):
                continue
            if entry.is_dir():
                yield from _walk(folder / entry.name, fence, f"{inside}{entry.name}/", (*above, real))
                continue
            if entry.is_symlink():
                if not is_image(entry.name) and not os.path.exists(entry.path):
                    raise _dangling(entry)
                fence.check(entry.path)
            yield inside + entry.name


def layout(folder: Path, fence: Fence | None = None) -> Layout:
    """What lies in a folder: train and test parts, class folders, loose images, or no image at all."""
    fence = fence or Fence(folder)
    base = _base(folder)
    names = folders_in(base)
    if {"train", "test"} <= set(names) and all(layout(base / part, fence) == "classes" for part in ("train", "test")):
        return "split"
    if any(_holds_images(base / name) for name in names):
        return "classes"
    return "images" if any(map(is_image, _walk(base, fence))) else "nothing"


def read_folder(folder: Path, name: str | None = None, fence: Fence | None = None) -> Reading:
    """A labelled folder: ``<class>/…``, ``images/<class>/…``, or either in ``train/`` and ``test/``."""
    fence = fence or Fence(folder)
    kind, base = layout(folder, fence), _base(folder)
    if kind not in ("split", "classes"):
        expected = f"Expected {folder.name}/<class>/<images>"
        raise CosdaError(f"{folder} has no class folders. {expected}; {describe(folder)}.")
    files = files_below(base, fence)
    places = [_base(base / part) for part in ("train", "test")] if kind == "split" else [base]
    classes = sorted({label for place in places for label in folders_in(place)})
    train, *test = (_in_class_folders(files, place.relative_to(base)) for place in places)
    labels = {file: label for part in (train, *test) for file, label in part.items()}
    if not labels:
        raise CosdaError(f"{base} holds class folders but no images; {describe(base)}.")
    images = tuple(file for file in files if file in labels)
    split = (train, test[0]) if test else None
    reading = make_reading(name or name_of(folder), base, images, labels, tuple(classes), split)
    return _with_ignored(reading, [file for file in files if file not in labels])


def read_images(folder: Path, name: str | None = None, fence: Fence | None = None) -> Reading:
    """All images in a folder and its folders, whatever these are called, without labels. A file is a domain of one."""
    name = name or name_of(folder)
    if folder.is_file():
        return make_reading(name, folder.parent, (folder.name,))
    files = files_below(folder, fence)
    images = tuple(file for file in files if is_image(file))
    if not images:
        raise CosdaError(f"{folder} holds no images; {describe(folder)}.")
    return _with_ignored(make_reading(name, folder, images), [file for file in files if not is_image(file)])


def make_reading(
    name: str,
    root: Path,
    files: tuple[str, ...],
    labels: Mapping[str, str] | None = None,
    classes: tuple[str, ...] = (),
    split: tuple[Container[str], Container[str]] | None = None,
) -> Reading:
    """Put files with the names of their classes together; ``split`` are the files of train and test."""
    index = {label: position for position, label in enumerate(classes)}
    numbered = np.array([index[labels[file]] for file in files], np.int64) if labels and classes else None

    def positions(part: Container[str]) -> Index:
        return np.array([i for i, file in enumerate(files) if file in part], np.int64)

    every = everything(len(files))
    train, test = (positions(part) for part in split) if split else (every, every)
    return Reading(Domain(name, Files(root, files), numbered, train, test), classes, split is not None)


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


def _in_class_folders(files: list[str], part: PurePath) -> dict[str, str]:
    """The images of a part, each with its class: the first folder of its name below that of the part."""
    prefix = "" if part == PurePath() else f"{part.as_posix()}/"
    below = {file: file.removeprefix(prefix) for file in files if file.startswith(prefix) and is_image(file)}
    return {file: rest.split("/")[0] for file, rest in below.items() if "/" in rest}


def _with_ignored(reading: Reading, files: list[str]) -> Reading:
    """Count the files that were left out, by extension; images among them lie outside all class folders."""
    kinds: Counter[str] = Counter()
    for file in files:
        extension = PurePosixPath(file).suffix.lower() or "without extension"
        kinds[f"{extension} beside class folders" if is_image(file) else extension] += 1
    return replace(reading, domain=replace(reading.domain, ignored=dict(sorted(kinds.items()))))
