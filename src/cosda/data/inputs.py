"""What may be given as the images of one domain, and who reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cosda.data import lists, readers
from cosda.data.arrays import read_arrays
from cosda.data.containers import find_container, locate
from cosda.data.decode import EXTENSIONS, is_image
from cosda.data.domain import Domain
from cosda.data.fence import ANYWHERE, Fence
from cosda.data.readers import UNNAMED, Reading, listed
from cosda.data.registry import BENCHMARKS
from cosda.data.tables import is_dataset
from cosda.data.tables import read_dataset as read_table
from cosda.data.torch_dataset import Indexable, as_images, is_tensor, read_dataset
from cosda.errors import CosdaError, nearest

DataLike = str | os.PathLike[str] | Mapping[str, object] | Indexable | Domain

PATHS = (
    "Accepted are a folder of images, an image file, a CSV file with a header, a parquet file, an image list (.txt), "
    "an .npz file, a data set that datasets has saved, hf:ORG/NAME"
)
ACCEPTED = (
    f"{PATHS}; a list of paths, of PIL images or of arrays; an array or tensor of images, uint8 (N, H, W, 3), or of "
    "features, floats (N, d); a dictionary of such arrays with the keys of an .npz file; a torch or Hugging Face "
    "Dataset with a length; a cosda.Domain."
)


def load_domain(
    data: DataLike,
    classes: Sequence[str] | None = None,
    *,
    labels: bool = True,
    name: str | None = None,
    follow_links: bool = False,
) -> Domain:
    """One domain from whatever holds its images. Their order is kept; a folder is read in order of its file names.

    Without labels, a folder is all images in it and in its folders. Its folders' names then mean nothing, whether they
    are classes or not; to rename them changes at most the order. Labels of other data are not even looked at.

    Args:
        data: A folder, an image file, a CSV file with a header (path, label), a parquet file, an image list, an
            ``.npz`` file, a folder of ``save_to_disk``, ``hf:ORG/NAME``; ``DATA#DOMAIN`` names one of several domains,
            also of an embedded benchmark (``digits#hand``). Or a list of paths, PIL images or arrays; an array or
            tensor of images or features; a dictionary of them with the keys of an ``.npz`` file; a torch ``Dataset``
            of images or (image, label); a ``Dataset`` of ``datasets``; a `Domain`.
        classes: Those of a model. Labels are then positions in this list, matched by name, or by number if they
            have no names.
        labels: Whether to read labels, if there are any.
        name: That of the domain; the default is the name of its folder or file.
        follow_links: Whether links in a folder, and lists of paths in a file, may lead out of the data folder.

    Raises:
        CosdaError: the data are none of these, cannot be read, have classes that the model does not know, or lead out
            of their folder.

    Example:
        >>> target = load_domain("photos/new-site", labels=False)
        >>> checked = load_domain("photos/labelled.csv", model.classes)
        >>> frames = load_domain([Image.open(path) for path in paths], name="camera")
    """
    reading = _read(data, labels, tuple(classes or ()), follow_links)
    if classes and reading.classes:
        where = str(data) if isinstance(data, str | os.PathLike) else reading.domain.name
        reading = _for_model(reading, tuple(classes), where)
    return replace(reading.domain, name=name) if name else reading.domain


def _read(data: DataLike, labels: bool, classes: tuple[str, ...], follow_links: bool) -> Reading:
    if isinstance(data, Domain):
        return Reading(data if labels else data.without_labels())
    if isinstance(data, str | os.PathLike):
        place = locate(data)
        fence = ANYWHERE if follow_links else place.fence
        with readers.explained(place.path):
            reading = _read_path(place.path, labels, classes, fence, place.domain)
            return replace(reading, domain=place.renamed(reading.domain))
    if is_dataset(data):
        return _only(read_table(data, UNNAMED, labels), "the data set")
    if isinstance(data, Mapping):
        arrays = {str(key): as_images(value) if is_tensor(value) else np.asarray(value) for key, value in data.items()}
        return _only(read_arrays(arrays, UNNAMED, "the dictionary", labels), "the dictionary")
    if isinstance(data, Image.Image):
        data = [data]
    if is_tensor(data) or (isinstance(data, np.ndarray) and data.dtype.kind not in "OU"):
        return _only(read_arrays({"images": as_images(data)}, UNNAMED, "the array", labels), "the array")
    return _read_positions(data, labels)


def _read_positions(data: Any, labels: bool) -> Reading:
    """A list of paths or images, or a ``Dataset``."""
    kind = type(data).__name__
    if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        hint = " Give its dataset instead of the loader." if hasattr(data, "dataset") else ""
        raise CosdaError(f"{kind} cannot be read as images.{hint} {ACCEPTED}")
    if not len(data):
        raise CosdaError(f"this {kind} is empty; give at least one image.")
    if isinstance(data, list | tuple | np.ndarray) and all(isinstance(one, str | os.PathLike) for one in data):
        return lists.read_paths(data, UNNAMED)
    try:
        data[0]
    except Exception as error:  # the user's own code may raise anything
        reason = f"its item 0 raises {type(error).__name__}: {error}"
        raise CosdaError(f"{kind} cannot be read as images: {reason}. {ACCEPTED}") from error
    return read_dataset(data, UNNAMED, labels)


def _read_path(path: Path, labels: bool, classes: tuple[str, ...], fence: Fence | None, domain: str | None) -> Reading:
    if not path.exists():
        known = BENCHMARKS.get(str(path))
        if known is not None and known.make is not None:
            made = known.make()
            parts = made if labels else [each.without_labels() for each in made]
            return _only([Reading(each, made.classes if labels else ()) for each in parts], str(path), domain)
        siblings = os.listdir(path.parent) if path.parent.is_dir() else []
        raise CosdaError(f"{path} does not exist.{nearest(path.name, siblings)} {PATHS}.")
    if container := find_container(path, fence):
        return _only(container.read(path, labels, fence), str(path), domain)
    if domain is not None:
        raise CosdaError(f"{path} does not hold domains by name, such as '{domain}'; give the folder of one.")
    if path.is_dir():
        with_classes = labels and readers.layout(path, fence) in ("split", "classes")
        return (readers.read_folder if with_classes else readers.read_images)(path, fence=fence)
    match path.suffix.lower():
        case ".txt" if not labels:
            return lists.read_unlabelled_list(path, fence)
        case ".txt":
            reading = lists.read_list(path, sort=False, fence=fence)
            if classes and not all(_model_name(classes, name) for name in reading.classes):
                reading = lists.read_list(path, by_folder=False, sort=False, fence=fence)
            return reading
    if not is_image(path.name):
        raise CosdaError(f"{path} is of no known kind. {PATHS}. Images end in {', '.join(EXTENSIONS)}.")
    return readers.read_images(path)


def _only(readings: list[Reading], where: str, wanted: str | None = None) -> Reading:
    """The domain of that name, or the only one."""
    names = [reading.domain.name for reading in readings]
    if wanted is not None:
        return readers.called(wanted, readings, where)
    if len(readings) > 1:
        raise CosdaError(
            f"{where} holds several domains ({listed(names)}); one is needed here. Name it: DATA#{names[0]}, in Python "
            f"cosda.load_benchmark(data)['{names[0]}']."
        )
    return readings[0]


def _for_model(reading: Reading, classes: tuple[str, ...], where: str) -> Reading:
    """Labels as positions in a model's class list: by name, or by number where there are no names."""
    names = tuple(_model_name(classes, name) or name for name in reading.classes)
    unknown = [name for name in names if name not in classes]
    if unknown and reading.numbered and len(names) <= len(classes):
        return replace(reading, classes=classes)
    if unknown:
        raise CosdaError(
            f"{where} has classes that the model does not know: {listed(unknown)}."
            f"{nearest(unknown[0], classes)} The model's classes are: {listed(classes, 20)}."
        )
    return replace(reading, classes=names).with_classes(classes)


def _model_name(classes: tuple[str, ...], name: str) -> str | None:
    """The model's name of a class: itself, or the short form that a benchmark's tables use."""
    forms = [name, *(known.classes[name] for known in BENCHMARKS.values() if name in known.classes)]
    return next((form for form in forms if form in classes), None)
