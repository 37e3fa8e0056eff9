"""Any trained torch classifier becomes a `Network`: all but its last Linear layer is the encoder."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cosda.errors import CosdaError, nearest
from cosda.models.architecture import Architecture
from cosda.models.artifact import Model
from cosda.models.encoders.base import IMAGENET, Encoder, Preprocessing
from cosda.models.encoders.weights import first_line
from cosda.models.network import Network
from cosda.types import Output


class Wrapped(Encoder):
    """A model of the user's own whose last layer was taken off."""

    def __init__(self, body: nn.Module, width: int, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.body = body
        self.width = width
        self.preprocessing = preprocessing

    def forward(self, images: Tensor) -> Tensor:
        """Features (B, width): what the last layer used to get."""
        features: Tensor = self.body(images)
        return features


def wrap(
    model: nn.Module,
    classes: Sequence[str],
    *,
    classifier: str | None = None,
    preprocessing: Preprocessing = IMAGENET,
    example: Tensor | None = None,
) -> Model:
    """Turn a trained classifier into a `Model` with the same logits; the classifier itself stays as it is.

    ``classifier`` is the dotted path of the last Linear layer, which is searched for where this is left out;
    ``example`` is a batch that the model takes, needed where that is not (B, 3, size, size).
    """
    if example is None:
        if not preprocessing.of_images:
            raise CosdaError("for a model of feature vectors, give wrap an example: a batch (B, d) it takes.")
        shape = (2, 3, preprocessing.size, preprocessing.size)
        example = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    path = _find_classifier(model, classifier, example)
    network = split(model, path, preprocessing)
    linear = network.classifier
    assert isinstance(linear, nn.Linear)
    if linear.out_features != len(classes):
        raise CosdaError(
            f"the model's last layer '{path}' tells {linear.out_features} classes apart, but {len(classes)} "
            "class names were given."
        )
    _check_same(model, network, example, path)
    width = example.shape[1] if example.ndim == 2 else None
    architecture = Architecture("wrapped", linear.in_features, len(classes), width, path)
    return Model(network, architecture, tuple(classes), preprocessing, [{"wrapped": type(model).__qualname__}])


def split(model: nn.Module, classifier: str, preprocessing: Preprocessing) -> Network:
    """Cut a copy of the model before the Linear layer at the dotted path ``classifier``."""
    try:
        body = copy.deepcopy(model)
    except Exception as error:
        raise CosdaError(
            "the model cannot be copied, and adapting needs copies, a teacher and a student: "
            f"{first_line(error)}. A frequent cause is torch.nn.utils.weight_norm; use "
            "torch.nn.utils.parametrizations.weight_norm instead."
        ) from error
    linear = _linear_at(body, classifier)
    body.set_submodule(classifier, nn.Identity())
    return Network(Wrapped(body, linear.in_features, preprocessing), nn.Identity(), linear)


def _linear_at(model: nn.Module, path: str) -> nn.Linear:
    linears = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    if "" in linears:
        raise CosdaError("the model is a single Linear layer, which leaves no encoder; build a Network instead.")
    if path not in linears:
        known = ", ".join(list(linears)[-5:]) or "none"
        raise CosdaError(
            f"the model has no Linear layer called '{path}'.{nearest(path, linears)} Its last ones: {known}."
        )
    return linears[path]


def _find_classifier(model: nn.Module, path: str | None, example: Tensor) -> str:
    """The Linear layer whose output is the model's output, found by a trial forward."""
    if path is not None:
        _linear_at(model, path)
    called: list[tuple[str, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda _m, _i, output, name=name: called.append((name, output)))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        logits = _trial(model, example)
    finally:
        for hook in hooks:
            hook.remove()
    if not called:
        raise CosdaError("the model uses no Linear layer, so there is no classifier to tell from an encoder.")
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(example):
        got = f"a tensor {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise CosdaError(
            f"the model gives {got} for a batch of {len(example)}, where logits (B, C) are needed; wrap a "
            "module that returns the logits alone."
        )
    name, output = next(((n, o) for n, o in reversed(called) if path in (None, n)), ("", None))
    if output is None or output.shape != logits.shape or not torch.equal(output, logits):
        raise CosdaError(
            f"the model's output is not that of its Linear layer '{path or called[-1][0]}': something follows "
            "it, such as a softmax. Wrap a model that gives logits, or name its last layer (classifier=)."
        )
    return name


def _trial(model: nn.Module, example: Tensor) -> object:
    """One forward in evaluation mode, after which every module is in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    parameter = next(model.parameters(), None)
    try:
        with torch.no_grad():
            return model.eval()(example if parameter is None else example.to(parameter.device))
    except Exception as error:
        raise CosdaError(
            f"the model does not take a batch of shape {tuple(example.shape)}: {first_line(error)}. Give "
            "wrap the right preprocessing, or an example batch."
        ) from error
    finally:
        for module, training in modes:
            module.training = training


def _check_same(model: nn.Module, network: Network, example: Tensor, path: str) -> None:
    """The parts must do together what the model did: a layer that is used twice, say, cannot be taken off."""
    before, after = _trial(model, example), _trial(network, example)
    assert isinstance(before, Tensor)
    assert isinstance(after, Output)
    if before.shape != after.logits.shape or not torch.allclose(before, after.logits):
        raise CosdaError(
            f"without its layer '{path}' the model no longer gives that layer's input; it may use the layer "
            "twice. Name another one: classifier='...'."
        )
