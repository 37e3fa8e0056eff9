"""A model of the user's own, cut into encoder and classifier, and put together again.

The classifier is a Linear layer, or a 1x1 convolution, which on pooled features is the same as a Linear layer and
becomes one. What stands behind it in the model (a softmax, say) is not part of the network, but still part of the
module that `join` gives back.
"""

from __future__ import annotations

import copy
import threading
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from cosda.errors import CosdaError, nearest
from cosda.models.encoders.base import Encoder, Preprocessing
from cosda.models.encoders.weights import first_line
from cosda.models.network import Network

L = TypeVar("L", nn.Linear, nn.Conv2d)


class _Caught(threading.local):
    """Features on their way past the end of a model. Several threads may use one model."""

    features: Tensor | None = None


_caught = _Caught()


class Wrapped(Encoder):
    """A model of the user's own up to its classifier."""

    def __init__(self, body: nn.Module, width: int, preprocessing: Preprocessing, tail: bool = False) -> None:
        super().__init__()
        self.body = body
        self.tail = tail
        self.width = width
        self.preprocessing = preprocessing

    def forward(self, images: Tensor) -> Tensor:
        """Features (B, width): what the classifier used to get."""
        output = self.body(images)
        if self.tail:
            features, _caught.features = _caught.features, None
        else:
            features = logits_of(output)
        assert features is not None
        return features.mean(dim=(2, 3)) if features.ndim == 4 else features


class Cut(nn.Module):
    """Stands in a model where its classifier was, and passes its input on.

    Where ``tail`` says that more follows than a change of shape or type, features cannot come out at the model's end:
    they are put aside, and the model's code goes on with zeros for its logits.
    """

    def __init__(self, classes: int, convolution: bool, tail: bool) -> None:
        super().__init__()
        self.classes = classes
        self.convolution = convolution
        self.tail = tail

    def forward(self, features: Tensor) -> Tensor:
        """The features themselves, or zeros."""
        if not self.tail:
            return features
        _caught.features = features
        shape = list(features.shape)
        shape[1] = self.classes
        return features.new_zeros(shape)


def logits_of(output: object) -> Tensor | None:
    """The logits in a model's output: a tensor, or an object or dictionary with ``logits``; None in anything else."""
    if isinstance(output, dict):
        output = output.get("logits")
    elif not isinstance(output, Tensor):
        output = getattr(output, "logits", None)
    return output if isinstance(output, Tensor) else None


def gives(logits: Tensor, given: Tensor) -> bool:
    """Whether a model that gives this has these logits: they themselves, their softmax or their log-softmax."""
    return (
        logits.shape == given.shape
        and bool(given.isfinite().all())
        and any(
            torch.allclose(said, given, rtol=1e-4, atol=1e-5 * float(given.abs().max()))
            for said in (logits, logits.softmax(dim=1), logits.log_softmax(dim=1))
        )
    )


def is_classifier(layer: nn.Module) -> bool:
    """Whether a layer can be a classifier: a Linear layer, or a 1x1 convolution whose weight is a plain tensor."""
    if isinstance(layer, nn.Conv2d):
        plain = layer.groups == 1 and not any(layer._reversed_padding_repeated_twice)
        return plain and layer.kernel_size == layer.stride == (1, 1) and not parametrize.is_parametrized(layer)
    return isinstance(layer, nn.Linear)


def find_layer(model: nn.Module, path: str) -> nn.Module:
    """The layer at a dotted path that can be the classifier.

    Raises:
        CosdaError: there is none; the message names the nearest and the last ones.
    """
    known: dict[str, nn.Module] = {name: layer for name, layer in model.named_modules() if is_classifier(layer)}
    if "" in known:
        raise CosdaError("the model is a single layer, which leaves no encoder; build a Network instead.")
    if path not in known:
        last = ", ".join(list(known)[-5:]) or "none"
        raise CosdaError(
            f"the model has no Linear layer or 1x1 convolution called '{path}'.{nearest(path, known)} "
            f"Its last ones: {last}."
        )
    return known[path]


def split(model: nn.Module, classifier: str, preprocessing: Preprocessing, tail: bool = False) -> Network:
    """Cut a copy of the model before the layer at the dotted path ``classifier``; ``tail`` as in `Cut`."""
    try:
        body = copy.deepcopy(model)
    except Exception as error:
        raise CosdaError(
            "the model cannot be copied, and adapting needs copies, a teacher and a student: "
            f"{first_line(error)}. A frequent cause is torch.nn.utils.weight_norm; use "
            "torch.nn.utils.parametrizations.weight_norm instead."
        ) from error
    layer = find_layer(body, classifier)
    linear = _as_linear(layer) if isinstance(layer, nn.Conv2d) else layer
    assert isinstance(linear, nn.Linear)
    body.set_submodule(classifier, Cut(linear.out_features, linear is not layer, tail))
    return Network(Wrapped(body, linear.in_features, preprocessing, tail), nn.Identity(), linear)


def join(network: Network, classifier: str) -> nn.Module:
    """The reverse of `split`: a copy of the user's model, with his names of weights and the network's weights."""
    encoder, layer = copy.deepcopy((network.encoder, network.classifier))  # at once: they may share weights
    assert isinstance(encoder, Wrapped)
    cut = encoder.body.get_submodule(classifier)
    assert isinstance(cut, Cut)
    encoder.body.set_submodule(classifier, _as_convolution(layer) if cut.convolution else layer)
    body: nn.Module = encoder.body
    return body


def _as_linear(layer: nn.Conv2d) -> nn.Linear:
    """A Linear layer that does to pooled features what a 1x1 convolution does at each position."""
    sizes = layer.in_channels, layer.out_channels
    return _with_weights(nn.Linear(*sizes, layer.bias is not None, "meta", layer.weight.dtype), layer)


def _as_convolution(layer: nn.Module) -> nn.Conv2d:
    assert isinstance(layer, nn.Linear)
    sizes = layer.in_features, layer.out_features
    made = nn.Conv2d(*sizes, 1, bias=layer.bias is not None, device="meta", dtype=layer.weight.dtype)
    return _with_weights(made, layer)


@torch.no_grad()
def _with_weights(layer: L, other: nn.Linear | nn.Conv2d) -> L:
    """Give a layer that has no memory yet, so that it drew no random numbers, the weights of another one."""
    layer.to_empty(device=other.weight.device)
    layer.weight.copy_(other.weight.view_as(layer.weight))
    if layer.bias is not None and other.bias is not None:
        layer.bias.copy_(other.bias)
    return layer.train(other.training)
