"""A checkpoint is one safetensors file that holds a nested state; replaced atomically, read without unpickling."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, load_file, save, save_file
from torch import Tensor

from cosda.distributed import collectives
from cosda.errors import CosdaError
from cosda.files import open_regular, write_atomically
from cosda.models.encoders.weights import read_metadata
from cosda.records.folder import RunFolder


class Checkpoint:
    """The last finished epoch of a run folder: where a run that was killed goes on, with the same bits."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.path = folder.path / "checkpoint" / "last.safetensors"

    def load(self) -> Any:
        """What was saved last, or None where nothing was; what was recorded after it is cut off, to be done again."""
        saved = load_checkpoint(self.path)
        self.folder.rewind(saved["records"] if saved else 0)
        return saved

    def save(self, **state: Any) -> None:
        """Keep a state with all that is recorded so far."""
        save_checkpoint(self.path, {**state, "records": self.folder.secure()})
        self.folder.settle()


def save_checkpoint(path: Path, state: Any) -> None:
    """Write tensors, numbers, texts, dictionaries and lists, nested; a kill leaves the old file or the new one.

    Of several processes the first one writes; what they hold is the same.
    """
    if not collectives.is_main():
        return
    tensors: dict[str, Tensor] = {}
    outline = json.dumps(_outline(state, tensors))
    metadata = {"outline": outline}
    if _is_text(path):
        write_atomically(path, lambda new: save_file(tensors, str(new), metadata=metadata))
    else:
        write_atomically(path, save(tensors, metadata))


def load_checkpoint(path: Path) -> Any:
    """Read back what `save_checkpoint` wrote, or None where there is no checkpoint yet."""
    found = _read(path)
    if not alike(found):  # this also keeps one from replacing the file before all have read it
        raise CosdaError(
            f"not all processes see the same file {path}. They must work on one file system: give an --out that they "
            "share."
        )
    return found


def alike(state: Any) -> bool:
    """Whether all processes of this run hold the same bits in a nested state."""
    return collectives.world() == 1 or len(set(collectives.everyone(_digest(state)))) == 1


def _digest(state: Any) -> str:
    tensors: dict[str, Tensor] = {}
    total = hashlib.blake2b(json.dumps(_outline(state, tensors)).encode(), digest_size=16)
    for tensor in tensors.values():
        total.update(tensor.cpu().view(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def _read(path: Path) -> Any:
    if not path.exists():
        return None
    try:
        open_regular(path).close()  # a pipe would be waited for
        tensors = load_file(path) if _is_text(path) else load(path.read_bytes())
        return _restore(json.loads(read_metadata(path)["outline"]), tensors)
    except Exception as error:
        raise CosdaError(f"{path} is damaged ({error}). Delete it to start this run from its beginning.") from None


def _is_text(path: Path) -> bool:
    """Whether the library can open such a path by itself, without the whole file in memory once more."""
    try:
        os.fsencode(path).decode()
    except UnicodeDecodeError:
        return False
    return True


def _outline(state: Any, tensors: dict[str, Tensor]) -> Any:
    """The state as JSON, with tensors put aside. Keys may be numbers, so a dictionary becomes a list of pairs."""
    if isinstance(state, Tensor):
        name = str(len(tensors))
        # A tensor whose memory is shared or not in order cannot be stored; the copy costs little here.
        tensors[name] = state.detach().clone(memory_format=torch.contiguous_format)
        return {"tensor": name}
    if isinstance(state, dict):
        return {"pairs": [[key, _outline(value, tensors)] for key, value in state.items()]}
    if isinstance(state, list | tuple):
        return {"list": [_outline(value, tensors) for value in state]}
    return {"value": state}


def _restore(outline: Any, tensors: dict[str, Tensor]) -> Any:
    ((kind, content),) = outline.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "pairs":
        return {key: _restore(value, tensors) for key, value in content}
    if kind == "list":
        return [_restore(value, tensors) for value in content]
    return content
