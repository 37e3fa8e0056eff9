"""The rows of tables as they are stored: data sets of Hugging Face's ``datasets``, and parquet files.

Values stay where they are until they are asked for. What the columns mean is for `tables`.
"""

from __future__ import annotations

import importlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from cosda.data.limits import LIST, MIB, UNPACKED, UNPACKED_RATIO
from cosda.errors import CosdaError
from cosda.files import as_text, open_regular, read_regular

Kind = Literal["images", "texts", "vectors", "numbers", "classes", "other"]

_BYTES = 8  # of a number, at most


class Part(Protocol):
    """Rows of a table that lie together."""

    @property
    def features(self) -> Mapping[str, Any]:
        """The types of its columns, in the words of ``datasets``."""
        ...

    @property
    def base(self) -> Path | None:
        """The folder to which paths in it are relative; None if a program holds it."""
        ...

    def __len__(self) -> int: ...

    def column(self, name: str) -> Any:
        """A whole column, as a ``pyarrow.ChunkedArray``."""
        ...

    def value(self, name: str, row: int) -> Any:
        """One value; of an image the bytes of its file, or its path, or both in a dictionary."""
        ...


def kind_of(feature: Any) -> Kind:
    """What a column holds."""
    kind, inner = type(feature).__name__, getattr(feature, "feature", None)
    if kind == "Image" or (isinstance(feature, Mapping) and "bytes" in feature):
        return "images"
    if kind == "ClassLabel":
        return "classes"
    dtype = str(getattr(feature, "dtype", "")) if kind == "Value" else ""
    if "binary" in dtype:
        return "images"
    if "string" in dtype:
        return "texts"
    if "int" in dtype:
        return "numbers"
    return "vectors" if str(getattr(inner, "dtype", "")).startswith("float") else "other"


class DatasetRows:
    """The rows of a ``Dataset``; those of a folder are mapped into memory by ``datasets``."""

    def __init__(self, dataset: Any, base: Path | None = None) -> None:
        rows = dataset.with_format(None)
        for name, feature in rows.features.items():
            if kind_of(feature) == "images" and hasattr(feature, "decode"):
                rows = rows.cast_column(name, replace(feature, decode=False))
        self.features, self.base = rows.features, base
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def column(self, name: str) -> Any:
        """A whole column."""
        return self._rows.select_columns([name]).with_format("arrow")[:].column(name)

    def value(self, name: str, row: int) -> Any:
        """One value."""
        return self._rows.select_columns([name])[row][name]


class ParquetRows:
    """The rows of a parquet file. It is opened for each group of rows that is read, and is not kept open."""

    def __init__(self, path: Path, base: Path) -> None:
        self.path, self.base = path, base
        stat = path.stat()
        self._stamp = (stat.st_size, stat.st_mtime_ns)  # another file of this name is not taken for it
        with _opened(path) as file:
            groups = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
            self._starts = np.cumsum([0, *groups]).tolist()
            if not 0 < self._starts[-1] <= stat.st_size:
                raise CosdaError(f"{path} says that it has {self._starts[-1]:,} rows, in {stat.st_size:,} bytes.")
            self.features = _features(file.schema_arrow)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def column(self, name: str) -> Any:
        """A whole column."""
        with _opened(self.path, name) as file:
            _check_size(self.path, file, range(file.metadata.num_row_groups))
            leaves = [number for number, leaf in enumerate(_leaves(file)) if leaf.path.startswith(f"{name}.")]
            if leaves:  # lists, which may be of any length
                file.scan_contents([name])  # pyarrow ends the process where what follows is damaged; this only raises
                groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
                _check(self.path, _BYTES * sum(group.column(leaf).num_values for group in groups for leaf in leaves))
            return file.read([name]).column(name)

    def value(self, name: str, row: int) -> Any:
        """One value."""
        group = bisect_right(self._starts, row) - 1
        return _group(self.path, self._stamp, name, group)[row - self._starts[group]].as_py()


@lru_cache(maxsize=2)  # images are read in order, apart from those of --no-pack
def _group(path: Path, stamp: tuple[int, int], name: str, group: int) -> Any:
    """A column of a group of rows."""
    with _opened(path, name) as file:
        _check_size(path, file, [group])
        return file.read_row_group(group, [name]).column(name)


@contextmanager
def _opened(path: Path, name: str | None = None) -> Iterator[Any]:
    """A parquet file; texts and bytes of the column are read once, however often they occur."""
    library()
    parquet = importlib.import_module("pyarrow.parquet")
    with explained(path, "a parquet file"), open_regular(path) as file:
        once: list[str] = []
        if name is not None:
            mine = [leaf for leaf in _leaves(parquet.ParquetFile(file)) if f"{leaf.path}.".startswith(f"{name}.")]
            once = [leaf.path for leaf in mine if leaf.physical_type == "BYTE_ARRAY"]
            file.seek(0)
        yield parquet.ParquetFile(file, read_dictionary=once)


def _leaves(file: Any) -> list[Any]:
    """What is stored of a file's columns: of one of lists or structures what is in these."""
    return [file.schema.column(number) for number in range(len(file.schema.names))]


def _check_size(path: Path, file: Any, groups: Iterable[int]) -> None:
    """An error for groups of rows that would unpack to far more than lies on the disk; see `UNPACKED`."""
    _check(path, sum(file.metadata.row_group(group).total_byte_size for group in groups))


def _check(path: Path, unpacked: int) -> None:
    size = path.stat().st_size
    if unpacked > max(UNPACKED.value * MIB, UNPACKED_RATIO * size):
        raise CosdaError(f"{path}: its {size / MIB:,.1f} MiB unpack to {UNPACKED.exceeded(unpacked / MIB)}.")


def library() -> Any:
    """The module ``datasets``, with which pyarrow comes."""
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise CosdaError(
            f"parquet files and folders of save_to_disk need datasets, which is not installed ({error}): "
            "pip install 'cosda[datasets]'."
        ) from None


def _features(schema: Any) -> dict[str, Any]:
    """The types of all columns in the words of ``datasets``, also where another program wrote the file."""
    features, arrow = library().Features, importlib.import_module("pyarrow")
    if b"huggingface" in (schema.metadata or {}):
        return dict(features.from_arrow_schema(schema))
    found: dict[str, Any] = {}
    for field in schema:
        plain = field.type.value_type if arrow.types.is_dictionary(field.type) else field.type
        try:
            found |= features.from_arrow_schema(arrow.schema([arrow.field(field.name, plain)]))
        except (ValueError, NotImplementedError):  # a type that datasets does not know
            found[field.name] = None
    return found


@contextmanager
def explained(path: Path, kind: str) -> Iterator[None]:
    """Say what could not be read; parsers of damaged files raise nearly anything."""
    try:
        yield
    except (CosdaError, KeyboardInterrupt):
        raise
    except Exception as error:
        reason = as_text(" ".join(str(error).split()))[:300].rstrip(".") or type(error).__name__
        raise CosdaError(f"{path} cannot be read as {kind}: {reason}.") from None


def read_small_json(path: Path) -> Any:
    """What a JSON file beside the rows says; no larger than a list may be."""
    return json.loads(read_regular(path, LIST.value * MIB))
