"""Whole classifiers of other libraries, where these are installed: `timm/NAME`, `torchvision/NAME`, `hf/NAME`.

`encoders/external.py` takes the same networks without their last layer.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import nn

from cosda.models.encoders.base import prefix
from cosda.models.encoders.external import (
    import_library,
    not_built,
    processor_of,
    side_of,
    timm_network,
    timm_preprocessing,
    torchvision_network,
    torchvision_preprocessing,
    torchvision_weights,
    transformers_network,
    transformers_preprocessing,
)
from cosda.models.encoders.weights import load_weights
from cosda.preprocessing import Preprocessing

Config = Mapping[str, Any]

WHOLE = 15 / 16  # between the test views of the profiles `cosda` (all of a side) and `shot` (7/8 of it)


@dataclass
class Library(ABC):
    """A classifier of a library by its name there."""

    name: str
    key: ClassVar[str]

    @abstractmethod
    def build(self, classes: int | None, config: Config | None = None) -> nn.Module:
        """The network with random weights; as many classes as it has by itself where their number is left out."""

    @abstractmethod
    def trained(self, weights: str, classes: int | None) -> nn.Module:
        """The network with the weights of a file, or those that the library fetches ("pretrained")."""

    @abstractmethod
    def preprocessing(self, network: nn.Module) -> Preprocessing:
        """What the library says of its images."""

    @abstractmethod
    def classes(self, network: nn.Module) -> tuple[str, ...] | None:
        """The names of the classes that it has by itself, where the library knows them."""

    def config(self, network: nn.Module) -> Config | None:
        """What `build` needs beside the name."""
        return None


class Timm(Library):
    """timm: `timm/NAME`."""

    key = "timm"

    def build(self, classes: int | None, config: Config | None = None) -> nn.Module:
        """By timm's factory."""
        return timm_network(self.name, classes=classes)

    def trained(self, weights: str, classes: int | None) -> nn.Module:
        """timm's own weights have as many classes as they have: another number would make a new last layer."""
        if weights == "pretrained":
            return timm_network(self.name, pretrained=True)
        return _with_file(self.build(classes), weights)

    def preprocessing(self, network: nn.Module) -> Preprocessing:
        """timm's data config."""
        data = import_library("timm.data", "timm").resolve_model_data_config(network)
        return _cropped(timm_preprocessing(network), data.get("crop_pct"))

    def classes(self, network: nn.Module) -> tuple[str, ...] | None:
        """ImageNet's names, for weights of ImageNet."""
        data = import_library("timm.data", "timm")
        subset = data.infer_imagenet_subset(network)
        if not subset:
            return None
        names = data.ImageNetInfo(subset)
        return _told_apart([names.index_to_description(place) for place in range(names.num_classes())])


class Torchvision(Library):
    """torchvision: `torchvision/NAME`."""

    key = "torchvision"

    def build(self, classes: int | None, config: Config | None = None) -> nn.Module:
        """By torchvision's factory."""
        return torchvision_network(self.name, classes=classes)

    def trained(self, weights: str, classes: int | None) -> nn.Module:
        """torchvision's own weights are fetched as plain tensors."""
        if weights != "pretrained":
            return _with_file(self.build(classes), weights)
        network = self.build(None)
        try:
            network.load_state_dict(torchvision_weights(self.name).get_state_dict(check_hash=True, weights_only=True))
        except Exception as error:  # of the network, of the disk, of the file
            raise not_built("torchvision", self.name, True, error) from error
        return network

    def preprocessing(self, network: nn.Module) -> Preprocessing:
        """Those of its best weights."""
        transform = torchvision_weights(self.name).transforms()
        return _cropped(torchvision_preprocessing(self.name), transform.crop_size[0] / transform.resize_size[0])

    def classes(self, network: nn.Module) -> tuple[str, ...] | None:
        """Those of its best weights."""
        names = torchvision_weights(self.name).meta.get("categories")
        return _told_apart(names) if names else None


class Transformers(Library):
    """transformers: `hf/NAME`, where the name is one of the hub or a folder."""

    key = "hf"

    def build(self, classes: int | None, config: Config | None = None) -> nn.Module:
        """From a config that was kept, which needs neither hub nor folder; else from the config of the name."""
        if config is None:
            return _module(transformers_network(self.name, whole=True, classes=classes))
        library = import_library("transformers", "transformers")
        try:
            kept = library.AutoConfig.for_model(**config)
            return _module(library.AutoModelForImageClassification.from_config(kept, trust_remote_code=False))
        except Exception as error:
            import_library("torchvision", None)
            raise not_built("transformers", self.name, False, error) from error

    def trained(self, weights: str, classes: int | None) -> nn.Module:
        """transformers translates the names of weights."""
        own = None if weights == "pretrained" else classes  # another number would make a new last layer
        return _module(transformers_network(self.name, weights, whole=True, classes=own)).float()

    def preprocessing(self, network: nn.Module) -> Preprocessing:
        """Its image processor's."""
        seen, values = transformers_preprocessing(self.name, network.config), processor_of(self.name)
        cropped = values.get("crop_size") and values.get("size") and values.get("do_center_crop", True)
        return _cropped(seen, side_of(values["crop_size"]) / side_of(values["size"]) if cropped else None)

    def classes(self, network: nn.Module) -> tuple[str, ...] | None:
        """Its config's id2label, unless these are transformers' own LABEL_0, LABEL_1, …"""
        labels: dict[int, str] = getattr(network.config, "id2label", None) or {}
        names = [str(labels[place]) for place in sorted(labels)]
        return None if all(re.fullmatch(r"LABEL_\d+", name) for name in names) else _told_apart(names)

    def config(self, network: nn.Module) -> Config | None:
        """Its own, so that the model can be built without the hub."""
        assert hasattr(network, "config")
        values: dict[str, Any] = json.loads(network.config.to_json_string())  # type: ignore[operator, union-attr]
        return {key: value for key, value in values.items() if key not in ("auto_map", "id2label", "label2id")} | {
            "num_labels": int(network.config.num_labels)  # type: ignore[union-attr, arg-type]
        }


LIBRARIES: dict[str, type[Library]] = {kind.key: kind for kind in (Timm, Torchvision, Transformers)}


def find_library(name: str) -> Library | None:
    """The classifier of a library that a name such as ``timm/resnet18`` stands for; None for any other name."""
    first, rest = prefix(name)
    return LIBRARIES[first](rest) if "/" in name and first in LIBRARIES else None


def _module(made: Any) -> nn.Module:
    assert isinstance(made, nn.Module)
    return made


def _with_file(network: nn.Module, weights: str) -> nn.Module:
    load_weights(network, weights, whole=True)
    return network


def _cropped(seen: Preprocessing, side: float | None) -> Preprocessing:
    """The profile whose test view is nearest to a crop in the centre that has this part of each side."""
    return replace(seen, profile="shot" if side is not None and side < WHOLE else "cosda")


def _told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """The names, with the number of the class where two have one; ImageNet has cranes that fly and cranes that lift."""
    names = list(names)
    return tuple(f"{name} ({place})" if names.count(name) > 1 else name for place, name in enumerate(names))
