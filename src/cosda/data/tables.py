"""Domains out of tables: data sets of Hugging Face's ``datasets``, and parquet files. (For CSV files see `lists`.)

A table has a row for each image. What a column means is told by its type, and where that is not enough by its name:

    image   the column of images, which are embedded or named by paths; or else the one of feature vectors
    label   label, labels or class; or else the only column of class labels
    domain  domain

Of splits called train and test (or validation) both are parts of the same domains. Splits of other names are domains.

Images stay in their table until they are asked for, and come out of it as the bytes of their files: the same image
gives the same pixels from a table and from a folder.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cosda.data import lists
from cosda.data.arrays import named, read_arrays
from cosda.data.decode import Unreadable, read_bytes
from cosda.data.domain import Domain, Images, Index, everything
from cosda.data.fence import ANYWHERE, Fence
from cosda.data.limits import check_classes
from cosda.data.lists import DOMAIN_COLUMN, LABEL_COLUMNS, PATH_COLUMNS
from cosda.data.readers import Reading, by_domain, files_below, folders_in, label_positions, listed, numbers
from cosda.data.rows import DatasetRows, Kind, ParquetRows, Part, explained, kind_of, library, read_small_json
from cosda.errors import CosdaError

Splits = Mapping[str, Sequence[Part]]

_TESTS = ("test", "validation", "valid", "val", "dev")  # splits that are measured, the best known first
_SHARD = re.compile(r"(?P<split>.+)-(?P<number>\d+)-of-(?P<count>\d+)")
_LETTERS = 1000  # of the name of a class or a domain, at most
_SAVED, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"


# --- What may be given ------------------------------------------------------------------------------------------------


def is_dataset(data: object) -> bool:
    """Whether a value is a data set of ``datasets``; a module of that name may also be somebody's own."""
    return any(
        isinstance(data, getattr(sys.modules[module], kind))
        for module, kind in (
            ("datasets.arrow_dataset", "Dataset"),
            ("datasets.iterable_dataset", "IterableDataset"),
            ("datasets.dataset_dict", "DatasetDict"),
            ("datasets.dataset_dict", "IterableDatasetDict"),
        )
        if module in sys.modules
    )


def read_dataset(data: Any, name: str, labels: bool = True) -> list[Reading]:
    """The domains of a ``Dataset`` or ``DatasetDict``. Its columns are read: transforms and formats do not count."""
    splits = dict(data) if isinstance(data, Mapping) else {"": data}
    if any(not hasattr(split, "select_columns") or not hasattr(split, "__len__") for split in splits.values()):
        raise CosdaError("a data set that is streamed has no length. Load it without streaming=True.")
    if not splits or not all(map(len, splits.values())):
        raise CosdaError("a split of this data set is empty, or it has none; give at least one image.")
    known = {str(split): [DatasetRows(rows)] for split, rows in splits.items()}
    first = next(iter(splits.values()))
    return _read(known, first.info.dataset_name or name, "the data set", labels, None)


def is_saved(path: Path) -> bool:
    """Whether a folder is one that ``save_to_disk`` of ``datasets`` wrote."""
    return (path / _SAVED).is_file() or all((path / name).is_file() for name in (_STATE, _INFO))


def read_saved(path: Path, labels: bool = True, fence: Fence | None = None) -> list[Reading]:
    """The domains of such a folder."""
    fence = fence or Fence(path)
    files_below(path, fence)  # links are looked at before anything is read
    with explained(path, "a folder that save_to_disk wrote"):
        names = read_small_json(path / _SAVED)["splits"] if (path / _SAVED).is_file() else [""]
        for place in (path / str(name) for name in names):
            fence.check(place)
            for file in read_small_json(place / _STATE)["_data_files"]:
                fence.check(place / file["filename"])
        found = library().load_from_disk(str(path.resolve()))
        splits = dict(found) if isinstance(found, Mapping) else {"": found}
        known = {str(name): [DatasetRows(rows, path)] for name, rows in splits.items()}
        return _read(known, path.name, str(path), labels, fence)


def is_parquet(path: Path) -> bool:
    """Whether a path is a parquet file, or a folder with such files in it or in its folders."""
    return path.suffix.lower() == ".parquet" if not path.is_dir() else bool(_parquet_files(path))


def read_parquet(path: Path, labels: bool = True, fence: Fence | None = None) -> list[Reading]:
    """The domains of a parquet file, or of a folder of them as the hub has it: ``[data/]train-00000-of-00002.parquet``.

    Raises:
        CosdaError: a file is damaged, or would fill the memory; one of several is missing; no column holds images.
    """
    base = path if path.is_dir() else path.parent
    fence, found = fence or Fence(base), {"": [path]}
    if path.is_dir():
        files_below(path, fence)
        found = _parquet_splits(path)
    with explained(path, "a parquet file"):
        splits = {split: [ParquetRows(file, base) for file in files] for split, files in found.items()}
        return _read(splits, path.name if path.is_dir() else path.stem, str(path), labels, fence)


def _parquet_files(folder: Path) -> list[Path]:
    places = [folder, *(folder / name for name in folders_in(folder))]
    places += [place / inner for place in places[1:] for inner in folders_in(place)]
    return [file for place in places for file in sorted(place.glob("*.parquet"))]


def _parquet_splits(folder: Path) -> dict[str, list[Path]]:
    """The files of each split; of one with a number for a name, which the hub makes, the split is its folder."""
    splits: dict[str, list[Path]] = defaultdict(list)
    shards: dict[str, list[tuple[int, int]]] = defaultdict(list)
    configurations = set()
    for file in _parquet_files(folder):
        shard = _SHARD.fullmatch(file.stem)
        numbered = file.stem.isdecimal()
        split = shard["split"] if shard else file.parent.name if numbered else file.stem
        place = file.parent.parent if numbered else file.parent
        configurations.add("" if place.name == "data" and place != folder else place.relative_to(folder).as_posix())
        splits[split].append(file)
        if shard:
            shards[split].append((int(shard["number"]), int(shard["count"])))
    if len(configurations) > 1:
        names = listed(sorted(configurations - {"", "."}))
        raise CosdaError(f"{folder} holds several data sets: {names}. Give the folder of one.")
    for split, found in shards.items():
        if {number for number, _ in found} != set(range(found[0][1])):
            raise CosdaError(
                f"{folder} has {len(found)} of the {found[0][1]} files of the split {split}. Copy the missing ones, "
                "such as by downloading it again."
            )
    return splits


# --- Columns ----------------------------------------------------------------------------------------------------------


class _Columns(NamedTuple):
    """The columns that are read."""

    image: str
    label: str | None
    domain: str | None


def _columns(features: Mapping[str, Any], where: str, labels: bool) -> _Columns:
    """Which column is what."""
    kinds = {name: kind_of(feature) for name, feature in features.items()}
    usual = {name.lower(): name for name in reversed(list(features))}

    def of_kind(*wanted: Kind) -> list[str]:
        return [name for name, kind in kinds.items() if kind in wanted]

    def called(names: Sequence[str], among: Sequence[str]) -> str | None:
        return next((usual[name] for name in names if usual.get(name) in among), None)

    domain = called([DOMAIN_COLUMN], of_kind("texts", "classes", "numbers"))
    paths = called(PATH_COLUMNS, of_kind("texts"))
    images = of_kind("images") or ([paths] if paths else of_kind("vectors"))
    if not images:
        shown = listed([f"{name} ({kind})" for name, kind in kinds.items()], 12)
        raise CosdaError(
            f"{where} has no column of images, of paths ({', '.join(PATH_COLUMNS)}) or of feature vectors. "
            f"It has: {shown}."
        )
    image = images[0] if len(images) == 1 else called([*PATH_COLUMNS, "features"], images)
    if image is None:
        raise CosdaError(
            f"{where} has several columns of images or feature vectors: {listed(images)}. Name the one that is meant "
            f"'image' (in Python data.rename_column('{images[0]}', 'image')), or leave the others out."
        )
    others = [name for name in of_kind("texts", "numbers", "classes") if name not in (image, domain)]
    label = called([*LABEL_COLUMNS, "labels"], others) if labels else None
    classes = [name for name in others if kinds[name] == "classes"] if labels and label is None else []
    if len(classes) > 1:
        raise CosdaError(
            f"{where} has several columns of class labels: {listed(classes)}. Name the one that is meant 'label' (in "
            f"Python data.rename_column('{classes[0]}', 'label'))."
        )
    return _Columns(image, label or next(iter(classes), None), domain)


def _read(splits: Splits, name: str, where: str, labels: bool, fence: Fence | None) -> list[Reading]:
    """All domains of a table."""
    tested = next((split for split in _TESTS if split in splits), None)
    if "train" in splits and tested and set(splits) <= {"train", *_TESTS}:
        left = sorted(set(splits) - {"train", tested})
        notes = (f"the split {listed(left)} is not read",) if left else ()
        halves = {split: splits[split] for split in ("train", tested)}
        return [replace(one, notes=(*one.notes, *notes)) for one in _domains(halves, name, where, labels, fence)]
    single = len(splits) == 1
    return [
        reading
        for split, parts in splits.items()
        for reading in _domains(
            {split: parts}, name if single else split, where if single else f"{where}, {split}", labels, fence
        )
    ]


def _domains(halves: Splits, name: str, where: str, labels: bool, fence: Fence | None) -> list[Reading]:
    """The domains of one split, or of a train and a test part."""
    parts = [part for half in halves.values() for part in half]
    columns = _columns(parts[0].features, where, labels)
    for part in parts:
        if missing := [column for column in columns if column is not None and column not in part.features]:
            raise CosdaError(f"{where}: not all of its files have the column {listed(missing)}.")
    counts = [sum(map(len, half)) for half in halves.values()]
    reading = _images(parts, columns.image, name, where, fence)
    if len(halves) > 1:
        train, test = np.split(everything(sum(counts)), [counts[0]])
        domain = replace(reading.domain, train=train, test=test)
        if isinstance(domain.items, Images):
            names = [f"{half}/{row}" for half, count in zip(halves, counts, strict=True) for row in range(count)]
            domain = replace(domain, items=replace(domain.items, names=tuple(names)))
        reading = replace(reading, domain=domain, is_split=True)
    reading = lists.with_columns(reading, *columns)
    if columns.label is not None:
        reading = _labelled(reading, parts, columns.label, where)
    if columns.domain is None:
        return [reading]
    codes, words = _encoded(parts, columns.domain)
    if (codes < 0).any():
        raise CosdaError(f"{where}: row {int(np.flatnonzero(codes < 0)[0])} has no {columns.domain}.")
    names = [_word(parts[0].features[columns.domain], word) for word in words]
    _check_words(names, f"{where}, column {columns.domain}")
    return by_domain(reading, [names[code] for code in codes])


def _images(parts: Sequence[Part], column: str, name: str, where: str, fence: Fence | None) -> Reading:
    """The images of a column, or its feature vectors."""
    base, kind = parts[0].base, kind_of(parts[0].features[column])
    if kind == "vectors":
        return read_arrays({"features": _vectors(parts, column, where)}, name, where, labels=False)[0]
    if kind == "texts":
        codes, words = _encoded(parts, column)
        if (codes < 0).any():
            raise CosdaError(f"{where}: row {int(np.flatnonzero(codes < 0)[0])} has no {column}.")
        files = [words[code] for code in codes]
        return lists.read_paths(files, name) if base is None else lists.of_files(name, base, where, files, fence)
    starts = np.cumsum([0, *map(len, parts)]).tolist()

    def open_image(row: int) -> bytes:
        number = bisect_right(starts, row) - 1
        return _bytes(parts[number], parts[number].value(column, row - starts[number]), fence)

    every = everything(starts[-1])
    return Reading(Domain(name, Images(open_image, numbers(starts[-1])), None, every, every))


def _bytes(part: Part, value: Any, fence: Fence | None) -> bytes:
    """The bytes of the file of an image, which a table holds or names."""
    content, path = (value.get("bytes"), value.get("path")) if isinstance(value, Mapping) else (value, None)
    if content is not None:
        return bytes(content)
    if not path:
        raise Unreadable("the row has no image")
    place = Path(path) if part.base is None else part.base / path
    try:
        (fence or (ANYWHERE if part.base is None else Fence(part.base))).check(place)
    except ValueError as error:  # no path at all
        raise Unreadable(f"the file cannot be read: {error}") from None
    return read_bytes(place)


def _vectors(parts: Sequence[Part], column: str, where: str) -> Any:
    """A column of lists of one length as an array (N, d)."""
    arrays = []
    for part in parts:
        for chunk in part.column(column).chunks:
            lengths = {len(vector) if vector is not None else 0 for vector in chunk}
            if len(lengths) > 1 or lengths == {0}:
                raise CosdaError(f"{where}: the vectors of column {column} have different lengths, or none.")
            if lengths:
                arrays.append(chunk.flatten().to_numpy(zero_copy_only=False).reshape(len(chunk), -1))
    if len({array.shape[1] for array in arrays}) > 1:
        raise CosdaError(f"{where}: the vectors of column {column} have different lengths.")
    return np.concatenate(arrays)


def _labelled(reading: Reading, parts: Sequence[Part], column: str, where: str) -> Reading:
    """The same with the labels of a column, if it has any: -1 stands for none where classes are numbered."""
    codes, words = _encoded(parts, column)
    feature = parts[0].features[column]
    if kind_of(feature) == "classes" and -1 in words:
        codes = np.where(codes == words.index(-1), -1, codes)
        words[words.index(-1)] = max(words)  # so that it is no class
    if (codes < 0).all():
        return reading
    if (codes < 0).any():
        row = int(np.flatnonzero(codes < 0)[0])
        raise CosdaError(f"{where}: row {row} has no {column}, and others have; give all of them or none.")
    where = f"{where}, column {column}"
    check_classes(len(words), where)
    _check_words([word for word in words if isinstance(word, str)], where)
    positions, classes = label_positions(np.array(words), where)
    labelled = replace(reading, domain=replace(reading.domain, labels=positions[codes]), classes=classes)
    names = tuple(map(str, getattr(feature, "names", None) or ()))
    return replace(named(labelled, names, where), shared=True) if names else labelled


def _word(feature: Any, word: Any) -> str:
    """A value as a name: that of a numbered class, where the column knows it."""
    names = getattr(feature, "names", None) or ()
    return str(names[word]) if isinstance(word, int) and 0 <= word < len(names) else str(word)


def _encoded(parts: Sequence[Part], column: str) -> tuple[Index, list[Any]]:
    """The values of a column as positions in a list of those that occur, and the list; -1 where there is none."""
    known: dict[Any, int] = {None: -1}
    codes = []
    for part in parts:
        for chunk in part.column(column).chunks:
            coded = chunk if hasattr(chunk, "dictionary") else chunk.dictionary_encode()
            words = [known.setdefault(word, len(known) - 1) for word in coded.dictionary.to_pylist()]
            codes.append(np.array([*words, -1], np.int64)[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
    return np.concatenate(codes), list(known)[1:]


def _check_words(words: Sequence[str], where: str) -> None:
    """An error for names that are no names."""
    if any(len(word) > _LETTERS for word in words):
        raise CosdaError(f"{where}: a name has more than {_LETTERS} letters.")
