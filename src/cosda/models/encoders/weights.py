"""Weight files: .safetensors and torch's own .pth/.pt, of which tensors are read and never code."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from cosda.errors import CosdaError
from cosda.files import JSON_BYTES, open_regular, parse_json

# Last layers, by the names that ResNets, EfficientNets, ConvNeXts and transformers give them. An encoder ends
# before them, so a file may hold them or not.
HEADS = ("fc", "_fc", "head", "heads", "classifier", "pooler")
NESTS = ("state_dict", "model_state_dict", "model")  # keys under which training programs put a state dict
SHOWN = 5  # keys named in an error message
# The layouts of bottleneck blocks (`resnet.py`), in the words that the metadata of a weights file has for them.
STRIDE_FIRST, STRIDE_SECOND = "stride 2 on the 1x1 convolution", "stride 2 on the 3x3 convolution"


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read the tensors of a weights file, on the CPU, without the `module.` of `DataParallel`."""
    path = Path(path)
    if path.is_dir():
        raise CosdaError(
            f"{path} is a folder, but weights=FILE takes one file of encoder weights. "
            "A model saved by cosda is opened whole by cosda.load."
        )
    if not path.is_file():
        raise CosdaError(f"the weights file {path} does not exist.")
    try:
        if path.suffix == ".safetensors":
            content = load_file(path)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a pickle that is refused below
                content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        wants = re.search(r"GLOBAL (\S+)", str(error))
        raise CosdaError(
            f"{path} is not a file of plain tensors, but a pickle"
            + (f" that wants to run {wants[1]}" if wants else "")
            + ", as torch.save makes of a whole model. cosda unpickles nothing, as that runs code from the file. If "
            "you trust the file, load it yourself and write its state dict: "
            "safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')."
        ) from None
    except Exception as error:  # on a file that is no weights file, torch's reader may raise anything
        raise CosdaError(f"{path} cannot be read as weights: {first_line(error)}. Is it whole?") from None
    return _plain(content, path)


def load_weights(module: nn.Module, path: str | Path, whole: bool = False) -> None:
    """Load a weights file into an encoder; a last layer in the file is ignored, everything else must fit.

    With ``whole`` the module is a classifier, and the last layer must be there and fit too.
    """
    wanted = module.state_dict()
    given = _without_prefix(read_weights(path), wanted)
    # BatchNorm's counters are absent from files written before torch 0.4.1 and change no output.
    missing = [k for k in wanted if k not in given and not k.endswith("num_batches_tracked")]
    extra = [k for k in given if k not in wanted and (whole or not is_head(k))]
    misshapen = [k for k in wanted if k in given and given[k].shape != wanted[k].shape]
    shapes = [f"{k} is {tuple(given[k].shape)}, needs {tuple(wanted[k].shape)}" for k in misshapen]
    check_fit(path, "this network" if whole else "this encoder", missing, extra, shapes)
    check_layout(module, read_metadata(path) if Path(path).suffix == ".safetensors" else {}, path)
    module.load_state_dict({k: v for k, v in given.items() if k in wanted}, strict=False)


def check_fit(path: str | Path, what: str, missing: list[str], extra: list[str], shapes: list[str]) -> None:
    """An error that names some of the weights that do not fit."""
    problems = [
        f"{name} {some(keys)}"
        for name, keys in (("missing:", missing), ("not known:", extra), ("of another shape:", shapes))
        if keys
    ]
    if problems:
        raise CosdaError(f"{path} does not fit {what}: " + "; ".join(problems) + ". Is it a file of another network?")


def _without_prefix(given: dict[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same under the module's names, where all of the file's begin with one word that these do not have.

    Training programs put such words before them: Lightning `model.`, torch.compile `_orig_mod.`.
    """
    found = given
    while found and not found.keys() & wanted.keys():
        if len({key.partition(".")[0] for key in found}) > 1 or not all("." in key for key in found):
            return given
        found = {key.partition(".")[2]: value for key, value in found.items()}
    return found


def read_metadata(path: str | Path) -> dict[str, str]:
    """What a safetensors file says about itself."""
    with open_regular(path) as file:  # the library itself opens no file whose name is no text
        size = int.from_bytes(file.read(8), "little")
        head = parse_json(file.read(min(size, JSON_BYTES)), str(path))
    metadata = head.get("__metadata__") if isinstance(head, dict) else None
    return {str(key): str(value) for key, value in metadata.items()} if isinstance(metadata, dict) else {}


def layout(module: nn.Module) -> str:
    """Where the bottleneck blocks of a network have their stride; nothing for a network without such blocks."""
    for block in module.modules():
        first, second = getattr(block, "conv1", None), getattr(block, "conv2", None)
        if isinstance(first, nn.Conv2d) and isinstance(second, nn.Conv2d) and first.kernel_size == (1, 1):
            if first.stride == (2, 2):
                return STRIDE_FIRST
            if second.stride == (2, 2):
                return STRIDE_SECOND
    return ""


def check_layout(module: nn.Module, metadata: Mapping[str, str], path: str | Path) -> None:
    """Refuse weights of the other layout, which fit by name and shape and are silently worse.

    The file's own words count, under whatever key they stand; a file that says nothing of its layout is taken.
    """
    said = re.search(r"stride 2 on the (1x1|3x3)", " ".join(metadata.values()))
    own = layout(module)
    if said and own and not own.startswith(said[0]):
        raise CosdaError(
            f"{path} is of a ResNet with {said[0]} convolution, but this encoder has {own}: the weights would load "
            "and be worse. 'resnet50-v1' and 'resnet101-v1' have it on the 1x1 convolution, as Keras' ResNet-50; "
            "'resnet50' and 'resnet101' have it on the 3x3 convolution, as torchvision's."
        )


def is_head(key: str) -> bool:
    """Whether a weight belongs to a last layer, which encoders do without."""
    return key.partition(".")[0] in HEADS


def first_line(error: BaseException) -> str:
    """The beginning of another library's message, short enough to stand in ours."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")


def _plain(content: object, path: Path) -> dict[str, Tensor]:
    """The state dict itself: training programs often put it under a key, beside the optimiser's."""
    if isinstance(content, Mapping) and not _is_state(content):
        inner = {str(key): value for key, value in content.items() if _is_state(value)}
        chosen = [key for key in NESTS if key in inner][:1] or list(inner)
        if len(chosen) > 1:
            raise CosdaError(
                f"{path} holds several state dicts ({', '.join(chosen)}). Write the one that is meant into a file of "
                "its own, with safetensors.torch.save_file."
            )
        content = inner[chosen[0]] if chosen else content
    if not isinstance(content, Mapping) or not _is_state(content):
        raise CosdaError(f"{path} holds no state dict: a dictionary of tensors, by name, was expected.")
    return {str(key).removeprefix("module."): value for key, value in content.items()}


def _is_state(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(isinstance(each, Tensor) for each in value.values())


def some(keys: list[str]) -> str:
    """The first of many keys, for a message."""
    rest = len(keys) - SHOWN
    return ", ".join(keys[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
