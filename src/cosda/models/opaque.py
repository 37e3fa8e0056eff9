"""Networks that are graphs in a file, ONNX or torch.export's: they predict and cannot be trained.

The file lies in the model folder as it is. What the layers of the graph are is not known, so the routing statistics of
images are its features: what goes into its last layer, where that can be found, and else its logits.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from cosda.errors import CosdaError
from cosda.models.architecture import Architecture
from cosda.models.encoders.base import Encoder, Preprocessing
from cosda.models.encoders.weights import first_line
from cosda.models.graphs import FORMATS, Opened, Runner
from cosda.models.network import Network
from cosda.models.split import gives

TRIAL = 2  # images


class Graph(Encoder):
    """A graph up to one of its tensors."""

    def __init__(
        self, format: str, content: bytes, run: Runner, width: int, batch: int | None, seen: Preprocessing
    ) -> None:
        super().__init__()
        self.format, self.content, self.run = format, content, run
        self.width, self.batch, self.preprocessing = width, batch, seen
        # So that two graphs are two networks by their weights.
        self.register_buffer("sha256", torch.tensor(list(hashlib.sha256(content).digest()), dtype=torch.uint8))

    def forward(self, images: Tensor) -> Tensor:
        """The tensor (B, d)."""
        if self.batch is None:
            return self.run(images).to(images.device)
        parts = [self._few(part) for part in torch.split(images, self.batch)]
        return torch.cat(parts).to(images.device)

    def _few(self, images: Tensor) -> Tensor:
        """The same for no more images than the graph takes; the last one stands in for those that are missing."""
        assert self.batch is not None
        missing = self.batch - len(images)
        if not len(images):
            return self._few(images.new_zeros(1, *images.shape[1:]))[:0]
        return self.run(torch.cat([images, images[-1:].expand(missing, *images.shape[1:])]))[: len(images)]


class Logarithm(nn.Module):
    """Stands for the last layer of a graph that gives probabilities: logits with the same softmax."""

    def forward(self, probabilities: Tensor) -> Tensor:
        """Their logarithms."""
        return probabilities.clamp(min=1e-30).log()


def is_graph(architecture: Architecture) -> bool:
    """Whether a network is a graph in a file."""
    return architecture.encoder in FORMATS


def open_network(architecture: Architecture, preprocessing: Preprocessing, content: bytes) -> Network:
    """The network of a graph; where its last layer was found, the weights of that are still to be loaded."""
    return _network(architecture, preprocessing, content, FORMATS[architecture.encoder].open(content))


def _network(architecture: Architecture, seen: Preprocessing, content: bytes, opened: Opened) -> Network:
    run, width = opened.runner(architecture.classifier), architecture.bottleneck
    graph = Graph(architecture.encoder, content, run, width, architecture.batch, seen)
    last: nn.Module = Logarithm() if architecture.tail else nn.Identity()
    if architecture.classifier is not None:
        last = nn.Linear(architecture.bottleneck, architecture.classes)
    return Network(graph, nn.Identity(), last).eval()


def import_graph(path: Path, preprocessing: Preprocessing, size: int | None) -> tuple[Network, Architecture]:
    """The network of a graph's file, which a trial has shown to work.

    Args:
        path: the file.
        preprocessing: how images are normalised.
        size: pixels of each side; those that the graph names, or the preprocessing's, where it is left out.

    Raises:
        CosdaError: it is no graph, holds a pickle, or does not turn images into logits.
    """
    if not path.is_file():
        raise CosdaError(f"the file {path} does not exist.")
    format = path.suffix[1:]
    try:
        content = FORMATS[format].read(path)
        opened = FORMATS[format].open(content)
        shape = opened.shape()
    except CosdaError as error:
        raise CosdaError(f"{path}: {error}") from error
    if size is not None and shape.side not in (None, size):
        raise CosdaError(f"--size {size}: {path} takes images of {shape.side} pixels alone. Leave --size out.")
    seen = replace(preprocessing, size=size or shape.side or preprocessing.size)
    batch, given = _trial(path, opened.runner(None), shape.batch, seen)
    classes = given.shape[1]
    last = opened.last_layer()
    if last is not None:
        cut = Architecture(format, last.weight.shape[1], classes, classifier=last.tensor, batch=batch)
        try:
            network = _network(cut, seen, content, opened)
            layer = {"weight": last.weight, "bias": torch.zeros(classes) if last.bias is None else last.bias}
            network.classifier.load_state_dict(layer)
            with torch.no_grad():
                if gives(network.forward(_example(seen)).logits, given):
                    return network, cut
        except Exception:  # of the library that computes the graph: not simple enough, its logits will do
            pass
    whole = Architecture(format, classes, classes, batch=batch, tail=_are_probabilities(given))
    return _network(whole, seen, content, opened), whole


def _trial(path: Path, run: Runner, batch: int | None, seen: Preprocessing) -> tuple[int | None, Tensor]:
    """The number of images that a graph takes, and what it gives for the example."""
    problem: Exception | None = None
    for tried in dict.fromkeys((batch, batch or 1)):  # some take any number of images by their own words, but one
        try:
            with torch.no_grad():
                given = Graph(path.suffix[1:], b"", run, 0, tried, seen)(_example(seen))
            if given.ndim != 2 or len(given) != TRIAL or not given.is_floating_point():
                raise CosdaError(f"it gives {tuple(given.shape)} for {TRIAL} images, where logits (B, C) are needed")
        except Exception as error:  # of the library that computes the graph
            problem = error
            continue
        if not given.isfinite().all():
            raise CosdaError(f"{path} gives numbers that are not finite. Are --size, --mean and --std the right ones?")
        return tried, given
    assert problem is not None
    raise CosdaError(
        f"{path} does not take images of {seen.size} pixels: {first_line(problem)}. Give the size that it was made "
        "for: --size PIXELS."
    )


def _example(seen: Preprocessing) -> Tensor:
    return torch.rand(TRIAL, 3, seen.size, seen.size, generator=torch.Generator().manual_seed(0))


def _are_probabilities(given: Tensor) -> bool:
    return bool((given >= 0).all()) and torch.allclose(given.sum(dim=1), torch.ones(len(given)), atol=1e-3)
