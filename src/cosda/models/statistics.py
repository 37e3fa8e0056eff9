"""BatchNorm layers and their running statistics: to read, to replace for a while, to share between GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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


def set_statistics(network: nn.Module, values: Sequence[Tensor]) -> None:
    """Replace all running means and variances."""
    if values:
        torch._foreach_copy_(statistics(network), list(values))


@contextmanager
def statistics_lent(network: nn.Module, values: Sequence[Tensor]) -> Iterator[None]:
    """Within the block the network has other BatchNorm statistics."""
    own = [value.clone() for value in statistics(network)]
    set_statistics(network, values)
    try:
        yield
    finally:
        set_statistics(network, own)


@contextmanager
def batch_statistics(network: nn.Module) -> Iterator[None]:
    """Within the block BatchNorm normalises with the batch's own statistics and leaves its buffers alone."""
    norms = list(batch_norms(network))
    before = [norm.training for norm in norms]
    for norm in norms:
        norm.training, norm.track_running_stats = True, False
    try:
        yield
    finally:
        for norm, training in zip(norms, before, strict=True):
            norm.training, norm.track_running_stats = training, True


def share_statistics(module: nn.Module) -> None:
    """Let all BatchNorm layers within a module normalise with the statistics of a batch that several GPUs share."""
    for name, child in module.named_children():
        if isinstance(child, FeatureNorm):
            shared = SharedFeatureNorm(child.num_features, child.eps, child.momentum)
            shared.load_state_dict(child.state_dict())
            setattr(module, name, shared.train(child.training))
        elif isinstance(child, nn.modules.batchnorm._BatchNorm) and not isinstance(child, nn.SyncBatchNorm):
            setattr(module, name, nn.SyncBatchNorm.convert_sync_batchnorm(child))  # type: ignore[no-untyped-call]
        else:
            share_statistics(child)
