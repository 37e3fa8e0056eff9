"""The network of all methods: encoder -> bottleneck (Linear + BatchNorm) -> weight-normed classifier."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from cosda.distributed import collectives
from cosda.models.precision import Arithmetic
from cosda.models.profile import DomainProfile
from cosda.models.statistics import FeatureNorm, share_statistics
from cosda.types import Output

M = TypeVar("M", bound=nn.Module)

PARTS = ("encoder", "bottleneck", "classifier")


class Network(nn.Module):
    """Three parts that can be trained, frozen and given their own learning rates."""

    domains: tuple[str, ...] = ()  # those that have a mask; see `masks`
    needs_domain = False  # whether it must be told which domain images are from
    profile: DomainProfile | None = None  # of the images that it was trained on, as it sees them
    passes = 0  # of all networks since the program began: methods are compared by how many they need
    arithmetic = Arithmetic()  # how passes are computed; no part of what is stored

    def __init__(self, encoder: nn.Module, bottleneck: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.bottleneck = bottleneck
        self.classifier = classifier

    @classmethod
    def build(cls, encoder: nn.Module, width: int, bottleneck: int, classes: int) -> Network:
        """A new head on an encoder that gives ``width`` features: Linear + BatchNorm, no ReLU, no dropout."""
        linear = nn.Linear(width, bottleneck)
        nn.init.xavier_normal_(linear.weight)
        nn.init.zeros_(linear.bias)
        classifier = nn.Linear(bottleneck, classes)
        nn.init.zeros_(classifier.bias)
        return cls(encoder, nn.Sequential(linear, FeatureNorm(bottleneck)), weight_norm(classifier))

    def __call__(self, images: Tensor) -> Output:
        """What `forward` gives for a batch; where several processes share it, each computes its own rows."""
        return shared_pass(images, lambda own: [super(Network, self).__call__(own)])[0]

    def forward(self, images: Tensor) -> Output:
        """Features after the bottleneck, and logits."""
        features = self.seen(images)
        return Output(features, self.classifier(features))

    def seen(self, images: Tensor) -> Tensor:
        """Features (B, d) after the bottleneck."""
        with self.arithmetic.autocast(images.device):
            features: Tensor = self.bottleneck(self.arithmetic.ready(self.encoder, images)(images))
        return features if self.arithmetic.dtype is None else features.float()

    def with_encoder(self, encoder: nn.Module) -> Network:
        """The same head (shared, not copied) on another encoder, such as `identity` for stored features."""
        other = Network(encoder, self.bottleneck, self.classifier)
        other.arithmetic, other.profile = self.arithmetic, self.profile
        return other

    def for_domain(self, domain: str | None) -> Network:
        """The network for images of one domain: itself, unless it has a mask for each (see `masks`)."""
        return self

    @property
    def base(self) -> Network:
        """The network that is trained and saved: itself, unless it has experts beside it (see `experts`)."""
        return self

    def with_domains(self, names: Iterable[str], rng: torch.Generator) -> Network:
        """The network as it knows these domains too: itself, unless it has a mask for each (see `masks`)."""
        return self

    def plain(self) -> nn.Sequential:
        """A copy that gives logits alone: its parts one after the other, with the weight norm computed once for all."""
        parts = copy.deepcopy({"encoder": self.encoder, "bottleneck": self.bottleneck, **self._between()})
        return nn.Sequential(OrderedDict(parts, classifier=_plain_linear(self.classifier)))

    def _between(self) -> dict[str, nn.Module]:
        """What stands between bottleneck and classifier."""
        return {}


def _plain_linear(classifier: nn.Module) -> nn.Linear:
    assert isinstance(classifier, nn.Linear)
    weight, bias = classifier.weight, classifier.bias
    sizes = classifier.in_features, classifier.out_features
    linear = nn.Linear(*sizes, bias is not None, "meta", weight.dtype)  # there it draws no random numbers
    linear.to_empty(device=weight.device)
    linear.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})
    return linear


def shared_pass(images: Tensor, compute: Callable[[Tensor], list[Output]]) -> list[Output]:
    """What ``compute`` gives for a batch. Of several processes each computes its own rows; then all have the whole.

    This stands around a network's `forward` and not in it: a network by itself is a plain module, which may be traced
    or exported for batches of any size.
    """
    if not torch.compiler.is_compiling():  # an exported pass would count once and for all
        Network.passes += 1
    if collectives.world() == 1:
        return compute(images)
    parts = [part for output in compute(images[collectives.share(len(images))]) for part in output]
    rows = collectives.gather_rows(torch.cat(parts, dim=1), len(images))  # they travel as one tensor, with gradient
    whole = torch.split(rows, [part.shape[1] for part in parts], dim=1)
    return [Output(*pair) for pair in zip(whole[::2], whole[1::2], strict=True)]


def to_device(module: M, device: torch.device) -> M:
    """Move a module to a device, its weights in channels-last order, in which convolutions run fastest.

    Where several GPUs share each batch, BatchNorm layers exchange its statistics. Torch can do this on GPUs only.
    """
    if device.type == "cuda" and collectives.world() > 1:
        share_statistics(module)
    return module.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def weights(network: nn.Module) -> list[Tensor]:
    """All parameters as plain tensors, in order (weight-norm magnitude and direction separately)."""
    return [parameter.detach() for parameter in network.parameters()]


def freeze(module: nn.Module) -> nn.Module:
    """Switch gradients off for all parameters, and return the module."""
    return module.requires_grad_(False)


def same_weights(left: nn.Module, right: nn.Module) -> bool:
    """Whether two networks hold the same bits."""
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)
