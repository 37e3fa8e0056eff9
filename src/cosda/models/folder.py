"""A model folder as files: its weights in two files, and `model.json` with the rest. Nothing is unpickled.

    encoder.safetensors, head.safetensors
    {"format": 1, "architecture": {...}, "classes": [...], "preprocessing": {...},
     "lineage": [{...}, ...], "sha256": {"encoder.safetensors": "...", "head.safetensors": "..."}}

The lineage tells, oldest first, where the model comes from: data, method and settings, verdict. The encoder has a file
of its own because many models may share it: where adaptation leaves it as it is, the file is linked to. Beside these
may lie the profile of what the network was trained on, and for a domain bank each expert with its domain's profile:

    profile-0.safetensors, expert-1.safetensors, profile-1.safetensors, expert-2.safetensors, ...
    {..., "experts": {"late": false, "experts": [{"domain": "...", "bits": 4}, ...]}}

A network that is a graph has that as well, as `graph.onnx` or `graph.pt2` (`opaque`).
`README.md` tells people the same (`card`). Nothing reads it; a card that somebody has written in is not replaced.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any, TypedDict

import safetensors.torch
import torch
from safetensors import SafetensorError

from cosda import hub
from cosda.errors import CosdaError
from cosda.files import JSON_BYTES, check_folder, read_json, read_regular, real_path
from cosda.models.encoders.weights import first_line
from cosda.models.experts import Stored
from cosda.records.lineage import Lineage
from cosda.settings import Range, shown, typed

FORMAT = 1
ENCODER, HEAD, DESCRIPTION = "encoder.safetensors", "head.safetensors", "model.json"
FILES = {ENCODER, HEAD, DESCRIPTION}
CARD = "README.md"
_PROFILES, _EXPERTS = "profile-*.safetensors", "expert-*.safetensors"  # by number: names of domains may be anything
_GRAPHS = "graph.*"  # by format
PATTERNS = (*sorted(FILES), CARD, _PROFILES, _EXPERTS, _GRAPHS)  # of all files that a model may have


class _StoredExpert(TypedDict):
    domain: str
    bits: Annotated[int, Range(1, 8)]


class _StoredBank(TypedDict):
    late: bool
    experts: tuple[_StoredExpert, ...]


class _Description(TypedDict):
    """What `model.json` holds; architecture and preprocessing are looked at where they are made of it."""

    format: int
    architecture: Mapping[str, Any]
    classes: tuple[str, ...]
    preprocessing: Mapping[str, Any]
    lineage: Lineage
    sha256: Mapping[str, str]


class Description(_Description, total=False):
    """The same of any model; that of a bank tells its experts."""

    experts: _StoredBank | None


def profile_file(number: int) -> str:
    """The file of a domain's profile; the base's is the first."""
    return _PROFILES.replace("*", str(number))


def expert_file(number: int) -> str:
    """The file of an expert; the base has number 0 and none."""
    return _EXPERTS.replace("*", str(number))


def graph_file(format: str) -> str:
    """The file of a network that is a graph."""
    return _GRAPHS.replace("*", format)


def is_model(path: str | Path) -> bool:
    """Whether a path looks like a model folder."""
    return all((Path(path) / name).is_file() for name in FILES)


def _is_part(file: Path) -> bool:
    """Whether a file of a model folder is part of the model; a card is, as long as nobody has written in it."""
    if file.name == CARD:
        try:
            written = read_description(file.parent)["sha256"].get(CARD)
            return bool(written == hashlib.sha256(read_regular(file, JSON_BYTES)).hexdigest())
        except (CosdaError, OSError):
            return False
    return any(fnmatch(file.name, pattern) for pattern in PATTERNS)


def read_description(path: Path) -> dict[str, Any]:
    """What the ``model.json`` of a model folder says.

    Raises:
        CosdaError: there is no model, or its description is damaged or too new.
    """
    if not is_model(path):
        found = "which does not exist" if not path.exists() else "which is not one"
        raise CosdaError(
            f"a model is a folder with {ENCODER}, {HEAD} and {DESCRIPTION}; got {path}, {found}. "
            "'cosda source' and 'cosda run' write models."
        )
    found = read_json(path / DESCRIPTION)
    version = found.get("format") if isinstance(found, dict) else None
    if isinstance(version, int) and version != FORMAT:
        raise CosdaError(
            f"{path} has model format {shown(version)}, but this cosda reads format {FORMAT}: update cosda."
        )
    return dict(typed(Description, found, damaged(path)))


def damaged(path: Path) -> str:
    """How messages about what a model folder says of itself begin."""
    return f"{path / DESCRIPTION} is damaged"


def read_weights(path: Path, description: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The weights of both files, once they have the hashes that the description gives them."""
    state: dict[str, torch.Tensor] = {}
    for name in (ENCODER, HEAD):
        content = Stored(path / name, description["sha256"].get(name, "")).read()
        try:
            state |= safetensors.torch.load(content)
        except SafetensorError as error:
            raise CosdaError(f"{path / name} cannot be read: {first_line(error)}.") from None
    return state


def check_free(path: Path, overwrite: bool) -> None:
    """Refuse to write a model where that cannot be done, or over anything but a model that may be replaced."""
    if hub.name_of(str(path)) is not None:
        raise CosdaError(f"{path} is a name on the hub and no folder. Say where to write to: --to FOLDER.")
    path = real_path(path.expanduser())
    check_folder(path.parent)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not path.is_dir() or not is_model(path):
        raise CosdaError(f"{path} exists and is not a model; choose another path.")
    if not overwrite:
        raise CosdaError(
            f"{path} holds a model already; choose another path, or say --overwrite (in Python overwrite=True)."
        )
    others = sorted(entry.name for entry in path.iterdir() if not _is_part(entry))
    if others:
        raise CosdaError(
            f"{path} holds other files beside its model ({', '.join(others)}), which would be lost; "
            "choose another path."
        )


def as_text(description: dict[str, Any]) -> str:
    """What ``model.json`` holds."""
    try:
        return json.dumps(description, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise CosdaError(f"the model's lineage or classes cannot be written as JSON: {error}.") from None
