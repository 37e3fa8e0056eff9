"""The network of all methods: encoder -> bottleneck (Linear + BatchNorm) -> weight-normed classifier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from cosda.types import Output

M = TypeVar("M", bound=nn.Module)

PARTS = ("encoder", "bottleneck", "classifier")


class FeatureNorm(nn.BatchNorm1d):
    """BatchNorm of feature vectors that falls back on its running statistics for a batch of one picture.

    One picture has no variance; torch refuses it, although nothing but this layer stands in the way.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (B, d) features."""
        if self.training and len(input) == 1:
            return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(input)


class Network(nn.Module):
    """Three parts that can be trained, frozen and given their own learning rates."""

    domains: tuple[str, ...] = ()  # those that have a mask; see `masks`
    passes = 0  # of all networks since the program began: methods are compared by how many they need

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

    def forward(self, images: Tensor) -> Output:
        """Features after the bottleneck, and logits."""
        Network.passes += 1
        features = self.bottleneck(self.encoder(images))
        return Output(features, self.classifier(features))

    def with_encoder(self, encoder: nn.Module) -> Network:
        """The same head (shared, not copied) on another encoder, such as `identity` for stored features."""
        return Network(encoder, self.bottleneck, self.classifier)

    def for_domain(self, domain: str | None) -> Network:
        """The network for pictures of one domain: itself, unless it has a mask for each (see `masks`)."""
        return self


def place(module: M, device: torch.device) -> M:
    """Move a module to a device, its weights in channels-last order, in which convolutions run fastest."""
    return module.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def batch_norms(network: nn.Module) -> Iterator[nn.modules.batchnorm._BatchNorm]:
    """All layers that keep running statistics; none in networks such as ViT."""
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            yield module


def statistics(network: nn.Module) -> list[Tensor]:
    """Running means and variances of all BatchNorm layers, in order; the tensors themselves, not copies."""
    found: list[Tensor] = []
    for norm in batch_norms(network):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        found += [norm.running_mean, norm.running_var]
    return found


def weights(network: nn.Module) -> list[Tensor]:
    """All parameters as plain tensors, in order (weight-norm magnitude and direction separately)."""
    return [parameter.detach() for parameter in network.parameters()]


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Within the block the network predicts; afterwards each module is in the mode in which it was found."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def freeze(module: nn.Module) -> nn.Module:
    """Switch gradients off for all parameters, and return the module."""
    return module.requires_grad_(False)


def same_weights(left: nn.Module, right: nn.Module) -> bool:
    """Whether two networks hold the same bits."""
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)
