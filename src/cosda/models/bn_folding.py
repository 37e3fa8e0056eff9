"""Networks for passes in which nothing is learnt: eval mode, no gradients, BatchNorm folded into convolutions.

With fixed statistics BatchNorm is a scale and a shift of each channel, which the convolution before it can do as well:

    BN(W·x + b) = (γ/σ)·W·x + (γ/σ)·(b - μ) + β

The network itself is never touched. What is folded is a copy of it that shares everything but those convolutions, made
anew for each pass, because weights and statistics change in between. Which pairs may be folded is seen by watching a
forward pass of two images, whatever the network's code looks like: a convolution whose weight is used once and whose
output goes into one BatchNorm and nowhere else. A trial with made-up statistics then compares the copy with the
network; one that does not agree, as where a network keeps its layers in places of its own, is left unfolded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_weights
from torch.overrides import TorchFunctionMode

from cosda.models.network import Network

M = TypeVar("M", bound=nn.Module)
Pairs = dict[str, str]  # path of a convolution -> path of the BatchNorm that follows it

# Images of a pass from which folding, which writes all weights once, surely takes less time than it saves: about 10
# for lite0 and ResNet-18 at 128 pixels, about 60 for the small ResNet at 32.
WORTH = 64
TRIAL = 2  # images of the trial
AGREE = 1e-2  # of the largest feature: TensorFloat-32 rounds, a BatchNorm that is done twice does far worse

CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
_known: WeakKeyDictionary[nn.Module, Pairs] = WeakKeyDictionary()


@contextmanager
def evaluating(network: M) -> Iterator[M]:
    """Yield the network for a pass over images without learning; it is the same, but faster.

    Within the block the modules predict; afterwards each is in the mode in which it was found.
    """
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with torch.inference_mode():
            yield _inference(network)
    finally:
        for module, mode in modes:
            module.training = mode


def _inference(network: M) -> M:
    encoder = network.encoder if isinstance(network, Network) else network
    compiled = isinstance(network, Network) and network.arithmetic.compiled  # which joins the layers by itself
    if compiled or not _may_fold(encoder):
        return network
    folding = Folding(encoder)
    folding.training = False  # of this alone: what is in it is in eval mode already
    return _with(network, {"encoder" if isinstance(network, Network) else "": folding})  # type: ignore[return-value]


def _may_fold(module: nn.Module) -> bool:
    """Whether there are both kinds of layers; heads on stored features have no convolutions."""
    kinds = (nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm)
    return all(any(isinstance(layer, kind) for layer in module.modules()) for kind in kinds)


class Folding(nn.Module):
    """An encoder for one pass, which is folded as soon as it has seen so many images that it pays."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.seen = 0
        self.folded: nn.Module | None = None

    def forward(self, images: Tensor) -> Tensor:
        """The encoder's features."""
        self.seen += len(images)
        if self.folded is None and self.seen >= WORTH and len(images):  # a process's share of a batch may be empty
            self.folded = fold(self.encoder, images)
        features: Tensor = (self.folded or self.encoder)(images)
        return features


def fold(encoder: nn.Module, images: Tensor, like: nn.Module | None = None) -> nn.Module:
    """A copy of an encoder in eval mode with BatchNorm folded; the encoder itself where nothing can be.

    ``like`` is an encoder of the same code that will be folded again and again: what may be folded is found out once.
    """
    like = encoder if like is None else like
    pairs = _known.get(like)
    if pairs is None:
        pairs = _known[like] = find_pairs(encoder, images[:TRIAL])
    return _fold(encoder, pairs) if pairs else encoder


def find_pairs(encoder: nn.Module, images: Tensor) -> Pairs:
    """The convolutions that may be folded, each with its BatchNorm; none where a trial does not bear it out."""
    with torch.inference_mode(), torch.autocast(images.device.type, enabled=False):
        try:
            pairs = _watch(encoder, images)
            shaken = _with(encoder, {path: _shake(encoder.get_submodule(path)) for path in pairs.values()})
            wanted, found = shaken(images), _fold(shaken, pairs)(images)
        except Exception:  # whatever a network of someone else's raises where its layers were exchanged
            return {}
        agree = bool((wanted - found).abs().max() <= AGREE * wanted.abs().max())  # never so for NaN
    return pairs if agree else {}


def _watch(encoder: nn.Module, images: Tensor) -> Pairs:
    with _Watch() as seen:
        features = encoder(images)
    names = {id(value): path for path, layer in encoder.named_modules() for value in _marks(layer)}
    pairs = {}
    for output, weight in seen.convolved.values():
        norm = seen.normalised.get(id(output))
        once = seen.uses[id(output)] == 1 and seen.uses[id(weight)] == 1 and features is not output
        if once and norm is not None and seen.uses[id(norm)] == 1 and {id(weight), id(norm)} <= names.keys():
            pairs[names[id(weight)]] = names[id(norm)]
    return pairs


def _marks(layer: nn.Module) -> list[Tensor]:
    """The tensor by which a layer's call is recognised. A weight that is computed at each call is none."""
    found: Tensor | None = None
    if isinstance(layer, nn.modules.conv._ConvNd):
        found = layer._parameters.get("weight")
    elif isinstance(layer, nn.modules.batchnorm._BatchNorm):
        found = layer.running_mean
    return [] if found is None else [found]


class _Watch(TorchFunctionMode):
    """Remembers what goes through convolutions and BatchNorm, and how often each tensor is used."""

    def __init__(self) -> None:
        super().__init__()
        self.uses: Counter[int] = Counter()
        self.convolved: dict[int, tuple[Tensor, Tensor]] = {}  # output and weight
        self.normalised: dict[int, Tensor] = {}  # id of the input -> the running mean
        self.kept: list[Any] = []  # an id means nothing once its tensor is gone

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = [*args, *(kwargs or {}).values()]
        tensors = [value for value in _flat(given) if isinstance(value, Tensor)]
        output = func(*args, **(kwargs or {}))
        if any(isinstance(value, Tensor) for value in _flat([output])):  # others only ask for a shape or a type
            self.uses.update({id(tensor) for tensor in tensors})
        self.kept += [*tensors, output]
        if func in CONVOLUTIONS and len(tensors) > 1:
            self.convolved[id(output)] = (output, tensors[1])
        elif func is F.batch_norm and len(tensors) > 1:
            self.normalised[id(tensors[0])] = tensors[1]
        return output


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _fold(encoder: nn.Module, pairs: Pairs) -> nn.Module:
    replaced: dict[str, nn.Module] = {}
    for path, follower in pairs.items():
        norm: Any = encoder.get_submodule(follower)
        convolution: Any = _copy(encoder.get_submodule(path))
        weight, bias = fuse_conv_bn_weights(
            convolution.weight, convolution.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
        )
        convolution._parameters = {"weight": weight, "bias": bias}
        # A BatchNorm with layers of its own, such as timm's, which holds the activation, keeps these.
        replaced |= {path: convolution, follower: nn.Sequential(*norm.children()).eval()}
    return _with(encoder, replaced)


def _shake(layer: nn.Module) -> nn.Module:
    """A BatchNorm that does something to every channel, as that of an untrained network does not."""
    norm: Any = _copy(layer)
    steps = torch.linspace(0.5, 1.5, norm.num_features, device=norm.running_mean.device)
    mean, variance = norm.running_mean + steps * (norm.running_var + norm.eps).sqrt(), norm.running_var * steps
    norm._buffers = {**norm._buffers, "running_mean": mean, "running_var": variance}
    if norm.weight is not None:
        norm._parameters = {**norm._parameters, "weight": norm.weight + steps}
    return norm  # type: ignore[no-any-return]


def _with(module: nn.Module, replaced: Mapping[str, nn.Module]) -> nn.Module:
    """A copy of a tree of modules with some of them replaced; all that does not lead to these is shared."""
    if "" in replaced:
        return replaced[""]
    inner: dict[str, dict[str, nn.Module]] = {}
    for path, other in replaced.items():
        first, _, rest = path.partition(".")
        inner.setdefault(first, {})[rest] = other
    copied = _copy(module)
    copied._modules = {
        name: _with(child, inner[name]) if child is not None and name in inner else child
        for name, child in module._modules.items()
    }
    return copied


def _copy(module: M) -> M:
    """The module alone: its parameters and children are shared until they are replaced."""
    copied = object.__new__(type(module))
    copied.__dict__.update(module.__dict__)
    copied.__dict__.pop("_compiled_call_impl", None)  # it is bound to the module itself
    return copied
