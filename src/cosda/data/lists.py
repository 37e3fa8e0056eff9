"""From lists of images to domains: "path label" on every line, a CSV file with a header, or a Python list of paths.

The order of a list is kept. Only benchmarks are sorted, so that they are the same from lists and from folders.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from cosda.data.decode import is_image
from cosda.data.domain import Files
from cosda.data.fence import Fence
from cosda.data.limits import LIST, MIB, check_classes
from cosda.data.readers import Reading, by_domain, folders_in, listed, make_reading, numbers
from cosda.data.registry import plain
from cosda.errors import CosdaError
from cosda.files import as_text, read_regular

_DIGITS = 18  # of the number of a class, at most

# Columns of tables, by what is in them. file_name is what Hugging Face's image folders have in their metadata.csv.
PATH_COLUMNS, LABEL_COLUMNS, DOMAIN_COLUMN = ("path", "image", "file", "file_name"), ("label", "class"), "domain"


class Line(NamedTuple):
    """A line of an image list."""

    number: int
    image: str
    label: int | None


# --- image lists ------------------------------------------------------------------------------------------------------


def read_list(
    path: Path,
    root: Path | None = None,
    name: str | None = None,
    test: Path | None = None,
    by_folder: bool = True,
    sort: bool = True,
    fence: Fence | None = None,
) -> Reading:
    """An image list, "path label" per line, or two of them: ``path`` for training and ``test``.

    Paths are relative to ``root``; without it to the list's folder or the one above, wherever they exist.
    Classes take the names of the images' folders, in alphabetical order, where every label has one folder
    and every folder one label; elsewhere, or without ``by_folder``, they are the numbers. Paths that lead out of the
    fence, which is the folder that they are relative to where none is given, are an error.
    """
    lists = [_labels_of(part) for part in (path, test) if part is not None]
    base, spelling = _locate(path, root, list(lists[0]))
    lists = [{_respell(image, spelling): label for image, label in labels.items()} for labels in lists]
    every = {image: label for labels in lists for image, label in labels.items()}
    conflict = next((image for image, label in lists[0].items() if label != every[image]), None)
    if conflict:
        raise CosdaError(f"{conflict} in {base} has one label for training and another for testing.")
    labels = {image: label for image, label in every.items() if label is not None}
    if labels and len(labels) < len(every):
        raise CosdaError(f"{path} has labels on some lines and none on others; give all of them or none.")
    names = _names_of(labels) if by_folder else {}
    if not names:
        check_classes(max(labels.values(), default=-1) + 1, str(path))
    classes = tuple(sorted(names.values())) or numbers(max(labels.values(), default=-1) + 1)
    named = {image: names.get(label, str(label)) for image, label in labels.items()}
    files = tuple(sorted(every) if sort else every)
    (fence or Fence(base)).check_files(Files(base, files))
    return make_reading(name or path.stem, base, files, named, classes, (lists[0], lists[1]) if test else None)


def read_unlabelled_list(path: Path, fence: Fence | None = None) -> Reading:
    """The images of a list, whatever labels it has."""
    images = [line.image for line in _lines(path)]
    base, spelling = _locate(path, None, images)
    files = tuple(_respell(image, spelling) for image in images)
    (fence or Fence(base)).check_files(Files(base, files))
    return make_reading(path.stem, base, files)


def _lines(path: Path) -> list[Line]:
    """All lines. A last word that is a number is the label: paths may have spaces."""
    lines = []
    for number, text in enumerate(_text(path, "an image list").splitlines(), 1):
        if not text.strip():
            continue
        *before, last = text.strip().rsplit(maxsplit=1)
        labelled = bool(before) and last.isdecimal()
        if labelled and len(last) > _DIGITS:
            raise CosdaError(f"{path}, line {number}: the label has {len(last)} digits; labels are numbers from 0 up.")
        image = (before[0] if labelled else text.strip()).replace("\\", "/")
        if not is_image(PurePosixPath(image).name):
            raise CosdaError(f'{path}, line {number}: expected "path label" with an image\'s path, found "{text}".')
        lines.append(Line(number, image, int(last) if labelled else None))
    if not lines:
        raise CosdaError(f'{path} is empty; expected "path label" on every line.')
    return lines


def _labels_of(path: Path) -> dict[str, int | None]:
    """The label of each image of a list."""
    labels: dict[str, int | None] = {}
    for line in _lines(path):
        if labels.setdefault(line.image, line.label) != line.label:
            raise CosdaError(f"{path}, line {line.number}: {line.image} stands there twice, with two labels.")
    return labels


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
            if any(_is_file(candidate / _respell(probe, spelling)) for probe in probes):
                return candidate, spelling
    looked = " and ".join(str(candidate) for candidate in candidates)
    raise CosdaError(
        f"the images of {path} were not found: its first entry is {names[0]}, looked for below {looked}. "
        f"Put the list beside the folders that it names."
    )


def _respell(image: str, spelling: Mapping[str, str]) -> str:
    head, slash, rest = image.partition("/")
    return spelling.get(head, head) + slash + rest


def _names_of(labels: Mapping[str, int]) -> dict[int, str]:
    """Label -> folder name, or nothing unless the two correspond one to one."""
    pairs = {(label, PurePosixPath(image).parent.name) for image, label in labels.items()}
    names = dict(pairs)
    return names if len(pairs) == len(names) == len(set(names.values())) and "" not in names.values() else {}


# --- CSV files and Python lists ---------------------------------------------------------------------------------------


def read_csv(path: Path, labels: bool = True, fence: Fence | None = None) -> list[Reading]:
    """A CSV file with a header: a column path, image or file, and perhaps one called label or class, and a domain.

    Paths are relative to the file's folder. Labels are names or numbers. Other columns are not read.
    """
    fieldnames, numbered_rows = _rows(path)
    columns = {str(name).strip().lower(): name for name in fieldnames}
    if len(columns) < len(fieldnames):
        raise CosdaError(f"{path} has two columns of one name: {listed(fieldnames)}. Give each its own.")
    where = next((columns[name] for name in PATH_COLUMNS if name in columns), None)
    if where is None:
        raise CosdaError(
            f"{path} has no column with paths. Its header must have {', '.join(PATH_COLUMNS[:-1])} or "
            f"{PATH_COLUMNS[-1]}, and may have {' or '.join(LABEL_COLUMNS)}, and {DOMAIN_COLUMN}; "
            f"it has: {listed(list(columns))}."
        )
    label = next((columns[name] for name in LABEL_COLUMNS if name in columns), None) if labels else None
    domain = columns.get(DOMAIN_COLUMN)
    files, found, domains = [], [], []
    for number, row in numbered_rows:
        for column in (where, domain):
            if column is not None and not row[column].strip():
                raise CosdaError(f"{path}, line {number}: the column '{column}' is empty.")
        files.append(row[where].strip())
        found.append(row[label].strip() if label else "")
        domains.append(row[domain].strip() if domain else "")
        if bool(found[-1]) != bool(found[0]):
            raise CosdaError(f"{path}, line {number}: some rows have a label and some have none.")
    if not files:
        raise CosdaError(f"{path} has a header and no rows.")
    reading = with_columns(of_files(path.stem, path.parent, str(path), files, fence), where, label, domain)
    if found[0]:
        # 007 is a name, and so is what has more digits than a number of a class can have
        numbered = all(word.isdecimal() and len(word) <= _DIGITS and word == str(int(word)) for word in found)
        reading = reading.with_labels(np.array([int(word) for word in found] if numbered else found), str(path))
    return by_domain(reading, domains) if domain else [reading]


def of_files(name: str, folder: Path, where: str, files: Sequence[str], fence: Fence | None) -> Reading:
    """The images that a table in a folder names, relative to it; errors say ``where``."""
    names = tuple(file.replace("\\", "/") for file in files)
    if not any(_is_file(folder / file) for file in names):
        looked, hint = f", looked for below '{folder}'", "Write paths relative to that folder, or absolute ones."
        if "://" in names[0]:
            looked, hint = "", "Addresses are never fetched: download the images, and write their paths."
        raise CosdaError(f"the images of {where} were not found: its first one is {names[0]}{looked}. {hint}")
    (fence or Fence(folder)).check_files(Files(folder, names))
    return make_reading(name, folder, names)


def with_columns(reading: Reading, image: str, label: str | None, domain: str | None) -> Reading:
    """The same with a note that says which columns were read."""
    columns = {"image": image, "label": label, "domain": domain}
    found = [f"{role} is the column '{as_text(name)}'" for role, name in columns.items() if name is not None]
    return replace(reading, notes=(*reading.notes, "; ".join(found)))


def read_paths(paths: Iterable[str | os.PathLike[str]], name: str) -> Reading:
    """A list of paths of image files; they stay as they are written."""
    files = tuple(os.fspath(path) for path in paths)
    if not any(_is_file(Path(file)) for file in files):
        hint = " Give a folder by its path alone, not in a list." if Path(files[0]).is_dir() else ""
        raise CosdaError(f"none of the {len(files)} paths of the list is a file; the first one is {files[0]}.{hint}")
    return make_reading(name, Path(), files)


def _rows(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The header of a CSV file and its rows, each with the number of its line."""
    text = _text(path, "a CSV file")
    header = text.partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text), delimiter=max(",;\t", key=header.count), restval="")
    try:
        return list(rows.fieldnames or ()), [(rows.line_num, row) for row in rows]
    except csv.Error as error:
        raise CosdaError(f"{path}, line {rows.line_num}: {error}.") from None


def _text(path: Path, kind: str) -> str:
    try:
        return read_regular(path, LIST.value * MIB).decode("utf-8-sig")
    except OSError as error:
        raise CosdaError(f"{path} cannot be read as {kind}: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise CosdaError(f"{path} cannot be read as {kind}: {error}.") from None


def _is_file(path: Path) -> bool:
    """Whether there is a file; what can be no path is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
