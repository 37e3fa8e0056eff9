"""A model is a folder: its weights in two files, and `model.json` with the rest. Nothing is unpickled.

    encoder.safetensors, head.safetensors
    {"format": 1, "architecture": {...}, "classes": [...], "preprocessing": {...},
     "lineage": [{...}, ...], "sha256": {"encoder.safetensors": "...", "head.safetensors": "..."}}

The lineage tells, oldest first, where the model comes from: data, method and settings, verdict. The encoder has a file
of its own because many models may share it: where adaptation leaves it as it is, the file is linked to.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn

from cosda.distributed import collectives
from cosda.errors import CosdaError
from cosda.models.architecture import Architecture
from cosda.models.encoders.base import Preprocessing
from cosda.models.encoders.weights import check_layout, first_line, layout, read_metadata
from cosda.models.masks import MaskedNetwork
from cosda.models.network import Network

FORMAT = 1
ENCODER, HEAD, DESCRIPTION = "encoder.safetensors", "head.safetensors", "model.json"
FILES = {ENCODER, HEAD, DESCRIPTION}


@dataclass
class Model:
    """A network with all that is needed to use it: class names, preprocessing, and where it comes from."""

    network: Network
    architecture: Architecture
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    lineage: list[dict[str, Any]] = field(default_factory=list)
    origin: Path | None = field(default=None, compare=False)  # the folder that it was loaded from

    def __post_init__(self) -> None:
        self.classes = tuple(self.classes)
        if len(self.classes) != self.architecture.classes:
            raise CosdaError(
                f"the network tells {self.architecture.classes} classes apart, "
                f"but {len(self.classes)} class names were given."
            )

    def save(self, path: str | Path, overwrite: bool = False, link: bool = False) -> Path:
        """Write the model folder, whole or not at all; equal models give equal bytes.

        With ``link``, a weights file that is still that of the folder the model was loaded from is not written again
        but linked to (both are then one file on the disk).

        Only a folder that holds a model and nothing else is ever replaced, and only with ``overwrite``. Of several
        processes that hold the model together, the first one writes.
        """
        path = Path(path).resolve()  # behind a link, it is the folder that is replaced
        if not collectives.is_main():
            return path
        _check_free(path, overwrite)
        weights = self._weights()
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in weights.items()}
        description = {
            "format": FORMAT,
            "architecture": self.architecture.as_json(),
            "classes": list(self.classes),
            "preprocessing": self.preprocessing.as_json(),
            "lineage": self.lineage,
            "sha256": hashes,
        }
        text = _as_text(description)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            for name, content in weights.items():
                if not (link and self._link(name, temporary / name, hashes[name])):
                    _write(temporary / name, content)
            _write(temporary / DESCRIPTION, text.encode())
            _put_in_place(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return path

    def _weights(self) -> dict[str, bytes]:
        """The content of each weights file."""
        # Clones, because safetensors refuses tensors that share memory, as tied weights do.
        state = {k: v.detach().cpu().clone().contiguous() for k, v in self.network.state_dict().items()}
        encoder = {key: state.pop(key) for key in list(state) if key.startswith("encoder.")}
        said = layout(self.network.encoder)  # names and shapes do not tell it
        metadata = {"layout": said} if said else None
        return {ENCODER: safetensors.torch.save(encoder, metadata), HEAD: safetensors.torch.save(state)}

    def _link(self, name: str, place: Path, sha256: str) -> bool:
        """Link to the same file of the folder that the model was loaded from, if it has not changed since."""
        if self.origin is None:
            return False
        try:
            if sha256 != hashlib.sha256((self.origin / name).read_bytes()).hexdigest():
                return False
            os.link(self.origin / name, place)
        except OSError:  # another disk, or a file system without links, or no such folder any more
            return False
        return True


def load(path: str | Path, device: str | torch.device = "cpu", build: Callable[[], nn.Module] | None = None) -> Model:
    """Open a model folder; the network is in evaluation mode.

    ``build`` is needed for a wrapped model of your own: a function that returns a model of the same shape as
    the one given to `wrap`, trained or not.
    """
    path = Path(path)
    description = _read_description(path)
    weights = _read_weights(path, description)
    # A new network draws random weights, which are then replaced: the caller's random numbers must not move.
    with torch.random.fork_rng(devices=[]):
        try:
            architecture = Architecture.from_json(description["architecture"])
            preprocessing = Preprocessing.from_json(description["preprocessing"])
            network = _rebuild(architecture, preprocessing, build)
            classes, lineage = tuple(description["classes"]), list(description["lineage"])
            model = Model(network, architecture, classes, preprocessing, lineage, path.resolve())
        except (KeyError, TypeError, AttributeError) as error:
            raise CosdaError(f"{path / DESCRIPTION} is damaged: {error!r}.") from None
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[1:4])
        raise CosdaError(
            f"the weights in {path} do not fit the network that its {DESCRIPTION} describes: {reason}"
        ) from None
    check_layout(network.encoder, read_metadata(path / ENCODER), path / ENCODER)
    network.to(device).eval()
    return model


def load_like(path: Path, model: Model) -> Model:
    """Open a model folder whose network has the shape of ``model``: also one that only the user's code can build."""
    description = _read_description(path)
    network, architecture = copy.deepcopy(model.network), Architecture.from_json(description["architecture"])
    if isinstance(network, MaskedNetwork):  # it may have learnt new domains
        network = network.with_domains(architecture.domains, torch.Generator())
    network.load_state_dict(_read_weights(path, description))
    network.eval()
    return replace(model, network=network, architecture=architecture, lineage=list(description["lineage"]))


def _rebuild(
    architecture: Architecture, preprocessing: Preprocessing, build: Callable[[], nn.Module] | None
) -> Network:
    if architecture.encoder != "wrapped" or build is None:
        return architecture.build(weights="random")
    from cosda.models.wrap import split  # wrap makes models, so it imports this module

    return split(build(), architecture.classifier or "", preprocessing)


def is_model(path: Path) -> bool:
    """Whether a path looks like a model folder."""
    return all((path / name).is_file() for name in FILES)


def _read_description(path: Path) -> dict[str, Any]:
    if not is_model(path):
        found = "which does not exist" if not path.exists() else "which is not one"
        raise CosdaError(
            f"a model is a folder with {ENCODER}, {HEAD} and {DESCRIPTION}; got {path}, {found}. "
            "'cosda source' and 'cosda run' write models."
        )
    try:
        description = json.loads((path / DESCRIPTION).read_text(encoding="utf-8"))
        version = description["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise CosdaError(f"{path / DESCRIPTION} is damaged: {error!r}.") from None
    if version != FORMAT:
        raise CosdaError(f"{path} has model format {version}, but this cosda reads format {FORMAT}: update cosda.")
    return dict(description)


def _read_weights(path: Path, description: dict[str, Any]) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = {}
    for name in (ENCODER, HEAD):
        content = (path / name).read_bytes()
        if hashlib.sha256(content).hexdigest() != (description.get("sha256") or {}).get(name):
            raise CosdaError(
                f"{path / name} is not the file that {DESCRIPTION} was written with: it is damaged, cut "
                "short or exchanged. Copy the model folder again from where it was whole."
            )
        try:
            state |= safetensors.torch.load(content)
        except SafetensorError as error:
            raise CosdaError(f"{path / name} cannot be read: {first_line(error)}.") from None
    return state


def _check_free(path: Path, overwrite: bool) -> None:
    """Refuse to write over anything but nothing, an empty folder, or a model that may be replaced."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not path.is_dir() or not is_model(path):
        raise CosdaError(f"{path} exists and is not a model; choose another path.")
    if not overwrite:
        raise CosdaError(f"{path} holds a model already; choose another path, or say overwrite=True.")
    others = sorted({entry.name for entry in path.iterdir()} - FILES)
    if others:
        raise CosdaError(
            f"{path} holds other files beside its model ({', '.join(others)}), which would be lost; "
            "choose another path."
        )


def _put_in_place(new: Path, path: Path) -> None:
    """Rename the finished folder; a model in its place stands beside it until that is done."""
    if not path.exists():
        new.rename(path)
        return
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    path.rename(old)
    new.rename(path)
    shutil.rmtree(old)


def _as_text(description: dict[str, Any]) -> str:
    try:
        return json.dumps(description, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise CosdaError(f"the model's lineage or classes cannot be written as JSON: {error}.") from None


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
