"""A trained classifier from elsewhere becomes a model: by a library, by its owner's function, or as a graph."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cosda.errors import CosdaError
from cosda.models.artifact import Model
from cosda.models.builders import built
from cosda.models.encoders.base import IMAGENET, Preprocessing
from cosda.models.encoders.weights import load_weights, read_weights
from cosda.models.graphs import FORMATS
from cosda.models.libraries import LIBRARIES, Library, find_library
from cosda.models.opaque import import_graph
from cosda.models.wrap import wrap
from cosda.preprocessing import Profile

NAMES = ", ".join(f"{key}/NAME" for key in LIBRARIES)
WEIGHTS = (".pth", ".pt", ".safetensors")


def import_model(
    model: str | Path,
    weights: str | Path | None = None,
    *,
    build: str | None = None,
    classes: str | Path | Sequence[str] | None = None,
    classifier: str | None = None,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    profile: Profile | None = None,
    flip: bool | None = None,
) -> Model:
    """Make a model of a trained classifier from elsewhere, and try it on two images.

    Args:
        model: ``timm/NAME``, ``torchvision/NAME`` or ``hf/NAME`` with ``weights``; a file of weights with ``build``; or
            an ``.onnx`` or ``.pt2`` file, which predicts and cannot be trained.
        weights: the file of a library's whole classifier, its last layer included; or "pretrained" for those that the
            library fetches.
        build: the function that makes the network, ``"module:function"``. It is run now; the model remembers its name
            and never runs it unasked.
        classes: their names in the order of the outputs, or a file of them (see `read_classes`). A library's classifier
            may know them by itself.
        classifier: the dotted path of the last layer, where the search for it fails.
        size: pixels of each side. This and the following are the model's own where it knows them, else ImageNet's.
        mean: of the pixels of each channel, from 0 to 1.
        std: likewise.
        profile: ``cosda`` if the whole image is seen, ``shot`` if the centre of it, 7/8 of each side.
        flip: off where left and right matter.

    Raises:
        CosdaError: something is missing or does not fit; or a file holds a pickle, which is never run.

    Example:
        >>> cosda.import_model("timm/resnet50", "trained.pth", classes="classes.txt").save("my-model")
    """
    given = {"size": size, "mean": mean, "std": std, "profile": profile, "flip": flip}
    changes = {
        key: tuple(map(float, value)) if key in ("mean", "std") else value  # type: ignore[arg-type]
        for key, value in given.items()
        if value is not None
    }
    names = read_classes(classes) if isinstance(classes, str | Path) else None if classes is None else tuple(classes)
    if names is not None:
        _check_names(names)
    file = Path(model).expanduser()
    library = find_library(str(model))
    with torch.random.fork_rng(devices=[]):
        if library is not None:
            if build is not None:
                raise CosdaError(f"{model} is built by its library. Leave --build out, or name a file of weights.")
            return _from_library(library, weights, names, classifier, changes)
        if weights is not None:
            raise CosdaError(f"--weights goes with the name of a library's network ({NAMES}), and {model} is none.")
        if file.suffix[1:] in FORMATS:
            if build is not None or classifier is not None:
                raise CosdaError(f"{file} is a whole graph. Leave --build and --classifier out.")
            return _from_graph(file, names, changes)
        return _from_weights(file, build, names, classifier, changes)


def _from_library(
    library: Library,
    weights: str | Path | None,
    names: tuple[str, ...] | None,
    classifier: str | None,
    changes: Mapping[str, Any],
) -> Model:
    name = f"{library.key}/{library.name}"
    if weights is None:
        raise CosdaError(
            f"{name} needs trained weights: --weights FILE, or --weights pretrained for the library's own."
        )
    try:
        network = library.trained(str(weights), None if names is None else len(names))
    except CosdaError as error:
        if names is not None or weights == "pretrained":
            raise
        raise CosdaError(f"{error} Classes of its own are named by --classes FILE.") from error
    names = names or library.classes(network)
    if names is None:
        raise CosdaError(f"{name} does not know the names of its classes: --classes FILE (one name a line).")
    model = _wrapped(network, names, classifier, replace(library.preprocessing(network), **changes))
    architecture = replace(model.architecture, builder=name, config=library.config(network))
    file = None if weights == "pretrained" else Path(weights)
    return replace(model, architecture=architecture, lineage=[_step(name, file)])


def _from_weights(
    file: Path, build: str | None, names: tuple[str, ...] | None, classifier: str | None, changes: Mapping[str, Any]
) -> Model:
    if build is None and file.suffix in WEIGHTS:
        raise CosdaError(
            f"{file} is a file of weights, from which nobody can tell the network. Say which function of yours makes "
            "it: --build MODULE:FUNCTION; or name a library's network, such as timm/resnet50, and give the file as "
            "--weights."
        )
    if build is None:
        kinds = ", ".join(f".{key}" for key in FORMATS)
        raise CosdaError(
            f"{file} is neither the name of a library's network ({NAMES}) nor a graph ({kinds}). If it is a file of "
            "weights, say which function makes the network: --build MODULE:FUNCTION."
        )
    names, seen = _named(names), replace(IMAGENET, **changes)
    read_weights(file)  # what is wrong with the request is an error before anything is run
    network = built(build)
    load_weights(network, file, whole=True)
    model = _wrapped(network, names, classifier, seen)
    architecture = replace(model.architecture, builder=build)
    return replace(model, architecture=architecture, lineage=[_step(build, file)])


def _from_graph(file: Path, names: tuple[str, ...] | None, changes: Mapping[str, Any]) -> Model:
    names = _named(names)
    network, architecture = import_graph(file, replace(IMAGENET, **changes), changes.get("size"))
    if architecture.classes != len(names):
        raise CosdaError(f"{file} tells {architecture.classes} classes apart, but {len(names)} class names were given.")
    seen = network.encoder.preprocessing
    assert isinstance(seen, Preprocessing)
    return Model(network, architecture, names, seen, [_step(f"a graph, {FORMATS[file.suffix[1:]].title}", file)])


def _wrapped(network: nn.Module, names: tuple[str, ...], classifier: str | None, seen: Preprocessing) -> Model:
    model = wrap(network.eval(), names, classifier=classifier, preprocessing=seen)
    model.network.eval()
    return model


def _named(names: tuple[str, ...] | None) -> tuple[str, ...]:
    if names is None:
        raise CosdaError("the classes have no names: --classes FILE (one name a line, in the order of the outputs).")
    return names


def _step(network: str, file: Path | None) -> dict[str, Any]:
    """The first line of the lineage."""
    facts = {"step": "import", "network": network, "weights": file.name if file else "pretrained"}
    if file is not None:
        facts["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    return facts | {"date": datetime.date.today().isoformat()}


def read_classes(path: str | Path) -> tuple[str, ...]:
    """The names of classes in a file, in the order of the outputs.

    A text with one name a line; or JSON: a list, a mapping from number to name (transformers' id2label), or one from
    name to number (torchvision's class_to_idx).

    Raises:
        CosdaError: there is no such file, or it holds something else.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise CosdaError(f"the file of classes {path} does not exist.")
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix != ".json":
            return tuple(line.strip() for line in text.splitlines() if line.strip())
        found = json.loads(text)
    except (OSError, ValueError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise CosdaError(f"the classes in {path} cannot be read: {error}.") from None
    if isinstance(found, dict):
        if all(isinstance(value, int) for value in found.values()):
            found = {str(number): name for name, number in found.items()}
        missing = [str(number) for number in range(len(found)) if str(number) not in found]
        if missing:
            raise CosdaError(f"{path} has {len(found)} classes, but none with the number {missing[0]}.")
        found = [found[str(number)] for number in range(len(found))]
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise CosdaError(f"{path} must hold a list of names, or a mapping from numbers to names.")
    return tuple(found)


def _check_names(names: Sequence[str]) -> None:
    if len(names) < 2:
        raise CosdaError(f"a classifier has at least two classes; {len(names)} were named.")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CosdaError(f"two classes have the same name: '{twice[0]}'.")
