"""Domains from arrays: an ``.npz`` file or a dictionary, with images or feature vectors of one domain or of several.

Keys are ``images`` (uint8, (N, H, W, 3) or grey (N, H, W)) or ``features`` (floats, (N, d)), with ``labels``
(numbers or names), whole or as ``train_…`` and ``test_…``; ``train`` and ``test`` hold the positions of a
split of what is whole. ``<domain>_`` before a key makes several domains, as in ``mnist_train_images``.
``classes`` holds the names of numbered classes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosda.data.archive import read_archive
from cosda.data.domain import Domain, Index, everything
from cosda.data.limits import LARGEST, WIDTH, check_classes
from cosda.data.readers import Reading, as_texts, label_positions, listed
from cosda.errors import CosdaError, nearest
from cosda.files import as_text

Array = NDArray[Any]
_KEY = re.compile(r"(?:(?P<domain>.+?)_)??(?P<what>(?:(?:train|test)_)?(?:images|features|labels)|train|test)")
_PARTS = ("images", "features", "labels", "train_images", "test_images", "train_labels", "test_labels", "classes")
_SHOWN = 60  # letters of a name in a message
_EXPECTED = "Expected images or features with labels; train_images, test_images …; or <domain>_images …"


def read_npz(path: Path, labels: bool = True) -> list[Reading]:
    """All domains of an ``.npz`` file, in the order in which they stand there, with one class list."""
    arrays = read_archive(path, lambda key: _is_known(key) and (labels or not _is_label(key)))
    _check_keys(arrays, str(path))
    return read_arrays({k: array for k, array in arrays.items() if array is not None}, path.stem, str(path), labels)


def read_arrays(arrays: Mapping[str, Array], name: str, where: str, labels: bool = True) -> list[Reading]:
    """The same from a dictionary of arrays. ``name`` is that of a domain without one; errors say ``where``."""
    _check_keys(arrays, where)
    domains: defaultdict[str, dict[str, Array]] = defaultdict(dict)
    for key, array in arrays.items():
        if (matched := _KEY.fullmatch(key)) and (labels or not _is_label(key)):
            domains[matched["domain"] or name][matched["what"]] = array
    if not domains:
        raise _nothing_known(arrays, where)
    readings = [_read_domain(where, domain, parts) for domain, parts in domains.items()]
    if labels and "classes" in arrays:
        names = _class_names(arrays["classes"], where)
        return [named(reading, names, where) for reading in readings]
    # classes that are only numbers: the highest one of the file counts for all its domains
    longest = max((reading.classes for reading in readings if reading.numbered), key=len, default=())
    return [reading.with_classes(longest) if reading.numbered else reading for reading in readings]


def named(reading: Reading, names: tuple[str, ...], where: str) -> Reading:
    """Give names to numbered classes."""
    if not reading.classes:
        return reading
    if not reading.numbered:
        unknown = [name for name in reading.classes if name not in names]
        if unknown:
            raise CosdaError(f"{where}: labels that are not in 'classes': {listed(unknown)}.")
        return reading.with_classes(names)
    if len(reading.classes) > len(names):
        raise CosdaError(
            f"{where}: {reading.domain.name} has label {len(reading.classes) - 1}, but 'classes' names {len(names)}."
        )
    return replace(reading, classes=names)


def _class_names(array: Array, where: str) -> tuple[str, ...]:
    """What ``classes`` holds."""
    if array.ndim != 1 or array.dtype.kind not in "USiuO" or not array.size:
        raise CosdaError(f"{where}: 'classes' must be a list of names; it has shape {array.shape} of {array.dtype}.")
    check_classes(array.size, where)
    return tuple(str(name) for name in as_texts(array, f"{where}, classes"))


def _check_keys(keys: Collection[str], where: str) -> None:
    """An error for a key that means nothing: it may be a misspelt one, and a domain would be without its images."""
    if keys and not any(map(_is_known, keys)):
        raise _nothing_known(keys, where)
    for key in keys:
        if not _is_known(key):
            shown = as_text(key[:_SHOWN])
            known = [f"{shown[: cut.end()]}{what}" for cut in re.finditer("^|_", shown) for what in _PARTS]
            raise CosdaError(
                f"{where} has an array '{shown}', which means nothing here.{nearest(shown, known)} Rename or remove "
                f"it. {_EXPECTED}."
            )


def _nothing_known(keys: Collection[str], where: str) -> CosdaError:
    found = listed([key[:_SHOWN] for key in keys])
    return CosdaError(f"{where} has none of the expected arrays. {_EXPECTED}. Found: {found}.")


def _is_known(key: str) -> bool:
    return key == "classes" or _KEY.fullmatch(key) is not None


def _is_label(key: str) -> bool:
    return key == "classes" or key.endswith("labels")


def _read_domain(where: str, name: str, parts: dict[str, Array]) -> Reading:
    """One domain from its arrays, whole or in a train and a test part."""
    where = f"{where}, domain {name}"
    halves = [part for part in ("train", "test") if f"{part}_images" in parts or f"{part}_features" in parts]
    if len(halves) == 1:
        raise CosdaError(f"{where}: there is a {halves[0]} part but not the other. {_EXPECTED}.")
    pieces = [_images(where, parts, f"{half}_") for half in halves] or [_images(where, parts, "")]
    try:
        items = np.concatenate([images for images, _ in pieces]) if halves else pieces[0][0]
    except ValueError:
        shapes = " and ".join(str(images.shape) for images, _ in pieces)
        raise CosdaError(f"{where}: train and test have images of different shapes, {shapes}.") from None
    known = [labels for _, labels in pieces if labels is not None]
    if known and len(known) < len(pieces):
        raise CosdaError(f"{where}: train and test must both have labels, or neither.")
    if len({labels.dtype.kind == "U" for labels in known}) > 1:
        raise CosdaError(f"{where}: of train and test, one has names as labels and the other has numbers.")
    labels, classes = label_positions(np.concatenate(known), where) if known else (None, ())
    every = everything(len(items))
    train = test = every
    if halves:
        train, test = np.split(every, [len(pieces[0][0])])
    elif "train" in parts or "test" in parts:
        train, test = (_positions(where, parts, part, len(items)) for part in ("train", "test"))
    return Reading(Domain(name, items, labels, train, test), classes, train is not test)


def _images(where: str, parts: dict[str, Array], prefix: str) -> tuple[Array, Array | None]:
    """Checked images and labels of one part: RGB images as uint8, or features as float32."""
    key = f"{prefix}images" if f"{prefix}images" in parts else f"{prefix}features"
    if key not in parts:
        raise CosdaError(f"{where}: {prefix}images or {prefix}features is missing. {_EXPECTED}.")
    images, labels = parts[key], parts.get(f"{prefix}labels")
    shape = images.shape
    if key.endswith("images") and images.dtype == np.uint8 and images.ndim in (3, 4):
        if images.ndim == 3:
            images = images[..., None]
        if images.shape[3] == 1:
            images = np.broadcast_to(images, (*images.shape[:3], 3))  # takes no memory
        good = images.shape[3] == 3
    else:  # feature vectors may be called images, images may not be floats
        good = images.ndim == 2 and np.issubdtype(images.dtype, np.floating)
    if not good or not images.size:
        raise CosdaError(
            f"{where}: {key} has shape {shape} of {images.dtype}. Expected images as uint8 "
            f"(N, H, W, 3) or (N, H, W), or features as floats (N, d)."
        )
    if images.ndim == 2:
        if images.shape[1] > WIDTH.value:
            raise CosdaError(f"{where}: {key} has {WIDTH.exceeded(images.shape[1])}.")
        with np.errstate(over="ignore"):  # what float32 cannot hold is not finite then
            images = images.astype(np.float32)
        if not np.isfinite(images).all():
            raise CosdaError(f"{where}: {key} holds values that are not finite; remove those rows.")
        if (reach := float(max(images.max(), -images.min()))) > LARGEST:
            raise CosdaError(
                f"{where}: {key} holds values up to {reach:.0e}, and {LARGEST:.0e} is the limit. Scale the features, "
                "those of all domains alike, to about mean 0 and variance 1."
            )
    if labels is not None and labels.shape != images.shape[:1]:
        raise CosdaError(f"{where}: {len(images)} rows but labels of shape {labels.shape}.")
    return images, None if labels is None else as_texts(labels, f"{where}, {prefix}labels")


def _positions(where: str, parts: dict[str, Array], part: str, count: int) -> Index:
    """The positions of a split, given as such or as a mask."""
    index = parts.get(part)
    if index is None:
        raise CosdaError(f"{where}: '{part}' is missing; give the positions of both train and test.")
    if index.dtype == bool and index.shape == (count,):
        index = np.flatnonzero(index)
    if index.dtype.kind not in "iu" or index.ndim != 1 or (index.size and not 0 <= index.min() <= index.max() < count):
        raise CosdaError(f"{where}: '{part}' must hold positions from 0 to {count - 1}.")
    return index.astype(np.int64)
