"""Encoders of other libraries, where these are installed: `timm/NAME`, `torchvision/NAME`, `hf/NAME`.

Each library's network loses its last layer and gives pooled features. Their width is measured by a trial
forward, since the libraries' own attributes do not agree on what it means.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cosda import hub
from cosda.errors import CosdaError, nearest
from cosda.models.encoders.base import IMAGENET, Encoder, Preprocessing
from cosda.models.encoders.weights import check_fit, first_line, is_head, load_weights, read_weights

_REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)?")  # a name of the hub, and no path


class External(Encoder):
    """A network of another library as an encoder."""

    def __init__(self, name: str, body: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.body = body
        self.preprocessing = preprocessing
        self.width = _measured_width(name, self)

    def forward(self, images: Tensor) -> Tensor:
        """Features (B, width) of images (B, 3, H, W)."""
        features: Tensor = self.body(images)
        return features


class PooledTransformer(nn.Module):
    """A vision model of transformers, whose output is a record, reduced to one feature vector an image."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        vision = getattr(model, "vision_model", model)  # the half of CLIP and its kin that sees
        # ViT's pooler is a Linear layer that classification checkpoints leave out: it would be random.
        pooler = getattr(vision, "pooler", None)
        self.ignores_pooler = isinstance(pooler, nn.Module) and any(
            isinstance(module, nn.Linear) for module in pooler.modules()
        )
        if self.ignores_pooler:
            vision.pooler = None
        self.model = vision

    def forward(self, images: Tensor) -> Tensor:
        """The pooled output; else the first token (B, T, d), or the mean of the map (B, d, H, W)."""
        output = self.model(pixel_values=images)
        pooled: Tensor | None = getattr(output, "pooler_output", None)
        if pooled is not None and not self.ignores_pooler:
            return pooled.flatten(1)
        last: Tensor = output.last_hidden_state
        return last[:, 0] if last.ndim == 3 else last.mean(dim=(2, 3))


def timm(name: str, weights: str | None = None) -> External:
    """A network of timm with random weights, with those that timm fetches ("pretrained"), or with those of a file."""
    body = timm_network(name, weights == "pretrained", 0)
    return _with_file(f"timm/{name}", body, timm_preprocessing(body), weights)


def timm_network(name: str, pretrained: bool = False, classes: int | None = None) -> nn.Module:
    """A network of timm as timm makes it, without a last layer for 0 classes; its own number where none is given."""
    library = import_library("timm", "timm")
    if not library.is_model(name):
        raise CosdaError(f"timm has no model '{name}'.{nearest(name, library.list_models())}")
    try:
        made: nn.Module = library.create_model(name, pretrained=pretrained, **_number("num_classes", classes))
    except Exception as error:  # timm passes on whatever its download library raises
        raise not_built("timm", name, pretrained, error) from error
    return made


def timm_preprocessing(network: nn.Module) -> Preprocessing:
    """What a network of timm says of its images."""
    data = import_library("timm.data", "timm").resolve_model_data_config(network)
    return Preprocessing(data["input_size"][-1], tuple(data["mean"]), tuple(data["std"]))


def torchvision(name: str, weights: str | None = None) -> External:
    """A classifier of torchvision without its last layer, with weights as in `timm`."""
    body = torchvision_network(name, weights == "pretrained")
    linears = [path for path, module in body.named_modules() if isinstance(module, nn.Linear)]
    if not linears:
        raise CosdaError(f"torchvision/{name} has no last Linear layer to take off, so it is no encoder.")
    body.set_submodule(linears[-1], nn.Identity())
    return _with_file(f"torchvision/{name}", body, torchvision_preprocessing(name), weights)


def torchvision_network(name: str, pretrained: bool = False, classes: int | None = None) -> nn.Module:
    """A classifier of torchvision as torchvision makes it, with its own number of classes where none is given."""
    models = import_library("torchvision.models", "torchvision")
    if name not in models.list_models(module=models):
        raise CosdaError(f"torchvision has no classifier '{name}'.{nearest(name, models.list_models(module=models))}")
    try:
        made: nn.Module = models.get_model(
            name, weights="DEFAULT" if pretrained else None, **_number("num_classes", classes)
        )
    except Exception as error:
        raise not_built("torchvision", name, pretrained, error) from error
    return made


def torchvision_weights(name: str) -> Any:
    """The entry of a classifier's weights, which knows their images and classes."""
    return import_library("torchvision.models", "torchvision").get_model_weights(name).DEFAULT


def torchvision_preprocessing(name: str) -> Preprocessing:
    """What torchvision says of a classifier's images."""
    transform = torchvision_weights(name).transforms()
    return Preprocessing(transform.crop_size[0], tuple(transform.mean), tuple(transform.std))


def _with_file(name: str, body: nn.Module, preprocessing: Preprocessing, weights: str | None) -> External:
    if weights not in (None, "random", "pretrained"):
        load_weights(body, weights)
    return External(name, body, preprocessing)


def transformers(name: str, weights: str | None = None) -> External:
    """A vision model of the hub, or of a folder that holds one, with weights as in `timm`."""
    model = transformers_network(name, weights)
    return External(f"hf/{name}", PooledTransformer(model), transformers_preprocessing(name, model.config))


def transformers_network(name: str, weights: str | None = None, whole: bool = False, classes: int | None = None) -> Any:
    """A model of transformers with weights as in `timm`; with ``whole`` a classifier, of so many classes.

    transformers itself reads the weights: their names differ between its files and its modules, and only transformers
    can translate them.
    """
    library = import_library("transformers", "transformers")
    if _REPOSITORY.fullmatch(name) and not Path(name).exists():
        hub.require(name, "model", "config.json")
    weights = None if weights == "random" else weights
    state = read_weights(weights) if weights not in (None, "pretrained") else None
    kind = library.AutoModelForImageClassification if whole else library.AutoModel
    found: Any = {}
    try:
        config = library.AutoConfig.from_pretrained(name, **_number("num_labels", classes))
    except Exception as error:  # there is no such model, or no network
        raise CosdaError(
            f"transformers could not read the config of '{name}': {first_line(error)}. Name a model of the hub, or a "
            "folder with a config.json."
        ) from error
    try:
        model = kind.from_config(config)
        if weights is not None:
            model, found = type(model).from_pretrained(
                name if state is None else None,
                config=config,
                state_dict=state,
                use_safetensors=True,  # the hub's older files are pickles
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are named below
            )
    except Exception as error:  # OSError, ValueError, hub errors, and import errors in disguise
        if not isinstance(error, OSError):  # OSErrors are about files and the hub
            import_library("torchvision", None)  # transformers hides that torchvision cannot be imported; say it first
        raise not_built("transformers", name, weights == "pretrained", error) from error
    if weights is not None:
        _check_found(weights, f"hf/{name}", whole, found)
    return model


def _check_found(weights: str, name: str, whole: bool, found: Mapping[str, Any]) -> None:
    """An error where transformers found other weights than it looked for; a last layer counts if it is wanted."""
    check_fit(
        f"the file of weights '{weights}'",
        name,
        sorted(key for key in found["missing_keys"] if whole or not is_head(key)),
        sorted(found["unexpected_keys"]) if whole else [],
        [
            f"{key} is {tuple(given)}, needs {tuple(wanted)}"
            for key, given, wanted in sorted(found["mismatched_keys"])
            if whole or not is_head(key)
        ],
    )


def transformers_preprocessing(name: str, config: Any) -> Preprocessing:
    """What the model's preprocessor_config.json says, and ImageNet's values for what it leaves out."""
    vision, values = getattr(config, "vision_config", config), processor_of(name)
    size = values.get("crop_size") or values.get("size") or getattr(vision, "image_size", None) or IMAGENET.size
    mean, std = values.get("image_mean") or IMAGENET.mean, values.get("image_std") or IMAGENET.std
    return Preprocessing(side_of(size), tuple(mean), tuple(std))


def _number(key: str, value: int | None) -> dict[str, int]:
    """An option, if it has a value."""
    return {} if value is None else {key: value}


def processor_of(name: str) -> dict[str, Any]:
    """The image processor's settings of a model of transformers; nothing where it has none."""
    try:
        mixin = import_library("transformers.image_processing_base", "transformers").ImageProcessingMixin
        values, _ = mixin.get_image_processor_dict(name)
    except OSError:
        return {}
    return dict(values)


def side_of(size: Any) -> int:
    """Pixels of a side, in any of the ways in which transformers writes it."""
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge") or IMAGENET.size
    return int(size[0] if isinstance(size, list | tuple) else size)


def import_library(module: str, extra: str | None) -> Any:
    """Import a module of an optional library; with no ``extra``, one that need not be there at all."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if extra is None:
            return None
        raise CosdaError(
            f"{extra} is not installed, or not whole ({first_line(error)}): pip install 'cosda[{extra}]'."
        ) from None
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        raise CosdaError(
            f"torchvision cannot be imported: its compiled operators are missing ({first_line(error)}). "
            "It was built for another torch, as happens with a CPU build of torch and the registry's "
            "torchvision. Install the torchvision that belongs to your torch (see pytorch.org). Neither it nor timm is "
            "needed by a built-in encoder, such as 'resnet50' or 'lite0', nor by a trained model that a function of "
            "yours makes (cosda import --build)."
        ) from None


def not_built(library: str, name: str, pretrained: bool, error: Exception) -> CosdaError:
    """The error for a network that a library could not make, and what to do."""
    what = "its pretrained weights" if pretrained else "it"
    hint = " Without a network connection, give weights=FILE." if pretrained else ""
    return CosdaError(f"{library} could not build '{name}' or get {what}: {first_line(error)}.{hint}")


def _measured_width(name: str, encoder: Encoder) -> int:
    size = encoder.preprocessing.size
    training = encoder.training
    try:
        with torch.no_grad():
            features = encoder.eval()(torch.zeros(1, 3, size, size))
    except Exception as error:
        raise CosdaError(f"{name} is no encoder of {size}x{size} images: {first_line(error)}.") from error
    finally:
        encoder.train(training)
    if not isinstance(features, Tensor) or features.ndim != 2:
        shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise CosdaError(f"{name} gives {shape} for one image, where (1, width) is needed: no encoder.")
    return features.shape[1]
