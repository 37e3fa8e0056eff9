"""Any trained torch classifier becomes a `Model`; `Model.module` gives it back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cosda.errors import CosdaError
from cosda.models.architecture import WRAPPED, Architecture
from cosda.models.artifact import Model
from cosda.models.encoders.base import FEATURE_VECTORS, IMAGENET, Preprocessing
from cosda.models.encoders.weights import first_line
from cosda.models.network import Network
from cosda.models.split import find_layer, gives, is_classifier, logits_of, split

ACCEPTED = "logits (B, C), or an object or dictionary with 'logits'; a softmax or log-softmax of them will do"


def wrap(
    model: nn.Module,
    classes: Sequence[str],
    *,
    classifier: str | None = None,
    preprocessing: Preprocessing | None = None,
    example: Tensor | None = None,
) -> Model:
    """Turn a trained classifier into a `Model` with the same logits; the classifier itself stays as it is.

    The model is cut before its last layer, which must be a Linear layer or a 1x1 convolution beside a global average.
    It gives logits (B, C), or an object or dictionary with ``logits``, as the models of transformers do. A softmax or
    log-softmax at its end is left out for the logits, and is there again in what `Model.module` gives back.

    Args:
        model: the trained classifier, in Python; a TorchScript module cannot be cut.
        classes: the names of its classes, in the order of its logits.
        classifier: the dotted path of its last layer, where the search for it fails.
        preprocessing: how its images are to be resized and normalised; as for ImageNet unless given.
        example: a batch that it takes, where that is not (B, 3, size, size). One of feature vectors, (B, d), says that
            the model is one of such vectors.

    Raises:
        CosdaError: the model cannot be cut so that the parts give the logits of the whole; the message says why.

    Example:
        >>> model = cosda.wrap(torchvision.models.resnet50(weights="DEFAULT"), classes=names)
    """
    _check_type(model)
    if preprocessing is None:
        preprocessing = FEATURE_VECTORS if example is not None and example.ndim == 2 else IMAGENET
    if example is None:
        if not preprocessing.of_images:
            raise CosdaError("for a model of feature vectors, give wrap an example: a batch (B, d) it takes.")
        shape = (2, 3, preprocessing.size, preprocessing.size)
        example = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng(devices=[]):  # a model may draw random numbers even in evaluation mode
        path, given = _find_classifier(model, classifier, example)
        if given.shape[1] != len(classes):
            raise CosdaError(
                f"the model's last layer '{path}' tells {given.shape[1]} classes apart, but {len(classes)} class names "
                "were given."
            )
        network, tail = _split(model, path, preprocessing, example, given)
    linear = network.classifier
    assert isinstance(linear, nn.Linear)
    width = example.shape[1] if example.ndim == 2 else None
    architecture = Architecture(WRAPPED, linear.in_features, len(classes), width, path, tail)
    return Model(network, architecture, tuple(classes), preprocessing, [{"wrapped": type(model).__qualname__}])


def _check_type(model: object) -> None:
    if isinstance(model, torch.jit.ScriptModule):
        raise CosdaError(
            "a TorchScript module cannot be cut into an encoder and a classifier, because its layers are compiled into "
            "one program. Wrap the Python module that it was made from; its weights fit there: "
            "module.load_state_dict(script.state_dict())."
        )
    if not isinstance(model, nn.Module):
        raise CosdaError(f"wrap takes a trained torch.nn.Module, not a {type(model).__name__}.")


def _find_classifier(model: nn.Module, path: str | None, example: Tensor) -> tuple[str, Tensor]:
    """The layer whose output the model gives, found by a trial forward, and what the model gives."""
    if path is not None:
        find_layer(model, path)
    called: list[tuple[str, Tensor]] = []

    def note(name: str, output: Tensor) -> None:
        # At once, because what follows may overwrite it.
        called.append((name, output.mean(dim=(2, 3)) if output.ndim == 4 else output.clone()))

    hooks = [
        layer.register_forward_hook(lambda _layer, _input, output, name=name: note(name, output))
        for name, layer in model.named_modules()
        if is_classifier(layer)
    ]
    try:
        output = _trial(model, example)
    finally:
        for hook in hooks:
            hook.remove()
    given = logits_of(output)
    if given is None or given.ndim != 2 or len(given) != len(example):
        raise CosdaError(
            f"the model gives {_described(output)} for a batch of {len(example)}, where one of these is needed: "
            f"{ACCEPTED}. Wrap a module that returns that."
        )
    if not called:
        raise CosdaError(
            "the model uses no Linear layer and no 1x1 convolution, so there is no classifier to tell from an encoder."
        )
    for name, logits in reversed(called):
        if path in (None, name) and gives(logits, given):
            return name, given
    raise CosdaError(
        f"the model's output is not that of its layer '{path or called[-1][0]}', nor a softmax of it: something else "
        "follows, such as a ReLU behind a 1x1 convolution. Wrap a module that ends with this layer and the mean over "
        "positions, or name another one (classifier=)."
    )


def _split(
    model: nn.Module, path: str, preprocessing: Preprocessing, example: Tensor, given: Tensor
) -> tuple[Network, bool]:
    """Cut the model, and see that the parts do together what it did; with its tail left out where that is needed."""
    for tail in (False, True):
        network = split(model, path, preprocessing, tail)
        try:
            output = logits_of(_trial(network, example))
        except CosdaError:  # what follows the classifier cannot do with its input
            continue
        if output is not None and gives(output, given):
            return network, tail
    raise CosdaError(
        f"without its layer '{path}' the model no longer gives that layer's input; it may use the layer twice. Name "
        "another one: classifier='...'."
    )


def _described(output: object) -> str:
    if isinstance(output, Tensor):
        return f"a tensor {tuple(output.shape)}"
    logits = logits_of(output)
    return f"a {type(output).__name__}" + ("" if logits is None else f" with logits {tuple(logits.shape)}")


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
            "wrap the right preprocessing, or an example batch; for a model of feature vectors example=vectors[:2]."
        ) from error
    finally:
        for module, training in modes:
            module.training = training
