"""The network of all methods: encoder -> bottleneck (Linear + BatchNorm) -> weight-normed classifier."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from cosda.distributed import collectives
from cosda.models.precision import Arithmetic
from cosda.types import Output

M = TypeVar("M", bound=nn.Module)

PARTS = ("encoder", "bottleneck", "classifier")


class FeatureNorm(nn.BatchNorm1d):
    """BatchNorm of feature vectors that falls back on its running statistics for a batch of one image.

    One image has no variance; torch refuses it, although nothing but this layer stands in the way.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (B, d) features."""
        return _normalise_one(self, input) if self.training and len(input) == 1 else super().forward(input)


class SharedFeatureNorm(nn.SyncBatchNorm):
    """The same for a batch that is spread over several GPUs."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise (B, d) features."""
        return _normalise_one(self, input) if self.training and len(input) == 1 else super().forward(input)


def _normalise_one(norm: nn.modules.batchnorm._BatchNorm, input: Tensor) -> Tensor:
    return F.batch_norm(input, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)


class Network(nn.Module):
    """Three parts that can be trained, frozen and given their own learning rates."""

    domains: tuple[str, ...] = ()  # those that have a mask; see `masks`
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

    def forward(self, images: Tensor) -> Output:
        """Features after the bottleneck, and logits."""
        features = self._own_features(images)
        return gathered([Output(features, self.classifier(features))], len(images))[0]

    def _own_features(self, images: Tensor) -> Tensor:
        """Features of the whole batch, or of this process's share where there are several; see `gathered`."""
        Network.passes += 1
        own = images[collectives.share(len(images))]
        with self.arithmetic.autocast(images.device):
            features: Tensor = self.bottleneck(self.arithmetic.ready(self.encoder, own)(own))
        return features if self.arithmetic.dtype is None else features.float()

    def with_encoder(self, encoder: nn.Module) -> Network:
        """The same head (shared, not copied) on another encoder, such as `identity` for stored features."""
        other = Network(encoder, self.bottleneck, self.classifier)
        other.arithmetic = self.arithmetic
        return other

    def for_domain(self, domain: str | None) -> Network:
        """The network for images of one domain: itself, unless it has a mask for each (see `masks`)."""
        return self

    def with_domains(self, names: Iterable[str], rng: torch.Generator) -> Network:
        """The network as it knows these domains too: itself, unless it has a mask for each (see `masks`)."""
        return self


def gathered(outputs: Sequence[Output], count: int) -> list[Output]:
    """Outputs for a whole batch of ``count``, from those that each process has for its own rows; with gradient."""
    if collectives.world() == 1:
        return list(outputs)
    parts = [part for output in outputs for part in output]  # they travel as one tensor
    whole = torch.split(collectives.gather_rows(torch.cat(parts, dim=1), count), [part.shape[1] for part in parts], 1)
    return [Output(*pair) for pair in zip(whole[::2], whole[1::2], strict=True)]


def place(module: M, device: torch.device) -> M:
    """Move a module to a device, its weights in channels-last order, in which convolutions run fastest.

    Where several GPUs share each batch, BatchNorm layers exchange its statistics. Torch can do this on GPUs only.
    """
    if device.type == "cuda" and collectives.world() > 1:
        share_statistics(module)
    return module.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def share_statistics(module: nn.Module) -> None:
    """Let all BatchNorm layers within a module normalise with the statistics of the whole batch."""
    for name, child in module.named_children():
        if isinstance(child, FeatureNorm):
            shared = SharedFeatureNorm(child.num_features, child.eps, child.momentum)
            shared.load_state_dict(child.state_dict())
            setattr(module, name, shared.train(child.training))
        elif isinstance(child, nn.modules.batchnorm._BatchNorm) and not isinstance(child, nn.SyncBatchNorm):
            setattr(module, name, nn.SyncBatchNorm.convert_sync_batchnorm(child))  # type: ignore[no-untyped-call]
        else:
            share_statistics(child)


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


def freeze(module: nn.Module) -> nn.Module:
    """Switch gradients off for all parameters, and return the module."""
    return module.requires_grad_(False)


def same_weights(left: nn.Module, right: nn.Module) -> bool:
    """Whether two networks hold the same bits."""
    ours, theirs = left.state_dict(), right.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)
