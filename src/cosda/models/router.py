"""Which domain an image comes from, by what the first layers of a network see of it.

The routing statistics of an image are the means and standard deviations of some channels at the inputs of a network's
first normalisation layers: colours, contrast, blur, texture, and little of what the image shows. They follow from the
image alone, so its answer is the same in any batch. A linear discriminant with a covariance that all domains share then
gives the posterior over the known domains.

How many layers and channels, and the halving of images, were chosen by how well the images of `digits` (seed 0) and of
Office-31 find their domain, without class labels: docs/bank.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from cosda.models.profile import DomainProfile, crossfitted, make_profile, profile_of_norms

PART, MOST_NORMS = 4, 8  # the first quarter of all BatchNorm layers, at most so many: later ones cost more
MOST_OTHERS = 3  # of other normalisation layers: before, within and after the first block
CHANNELS = 16  # of each layer, evenly spread
FEATURES = 256  # of feature vectors, evenly spread
HALVED = 64  # pixels from which images are halved first, which leaves a quarter of the work
TEMPERATURES = tuple(10 ** (tenths / 20) for tenths in range(41))  # from 1 to 100

Norm = nn.modules.batchnorm._BatchNorm
OTHERS = (nn.LayerNorm, nn.GroupNorm)


class Gauge:
    """Reads the routing statistics of images off an encoder, which must be in evaluation mode.

    ``late`` reads them at its end, where they are the features: for an encoder that is frozen, whose features are all
    there is, and for one that has no normalisation layer. ``full`` never halves images: what BatchNorm layers remember
    is of images in full size.
    """

    def __init__(self, encoder: nn.Module, late: bool = False, full: bool = False) -> None:
        self.encoder = encoder
        layers = list(encoder.modules())
        norms = sum(isinstance(layer, Norm) and layer.running_mean is not None for layer in layers)
        others = sum(isinstance(layer, OTHERS) for layer in layers)
        self.full = full
        self.halves = bool(norms) and not full  # other networks may need images of one size
        self.sites = max(1, min(MOST_NORMS, norms // PART)) if norms else min(MOST_OTHERS, others)
        self.late = late or not self.sites

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Statistics (B, D) of a batch, in double precision on the CPU."""
        return self.seen(images)

    def seen(self, images: Tensor) -> Tensor:
        """The same with gradients, where these are wanted."""
        if not images.shape[0]:  # of several processes one may have none; a mean over nothing is a warning
            return self(images.new_zeros(1, *images.shape[1:]))[:0]
        sites = [] if self.late else self._look(images)
        if not sites:
            return self.of_features(self.encoder(images))
        return torch.cat([part for site in sites for part in _describe(site)], dim=1).double().cpu()

    def of_features(self, features: Tensor) -> Tensor:
        """Those of feature vectors (B, d)."""
        return features[:, spread_over(features.shape[1], FEATURES)].double().cpu()

    @torch.no_grad()
    def remembered(self, name: str, image: Tensor, within: Tensor) -> DomainProfile | None:
        """The profile of what the encoder was trained on, from its BatchNorm statistics; None where these say nothing.

        ``image`` (1, 3, H, W) is any, to see which layers come first; ``within`` (D,) are the variances of routing
        statistics within some domain, which stand in for those of the forgotten one.
        """
        sites = [] if self.late else self._look(image)
        means, variances = [], []
        for site in sites:
            if site.mean is None or site.variance is None or site.maps.dim() == 2:
                return None
            columns = spread_over(len(site.mean), CHANNELS)
            means.append(site.mean[columns])
            variances.append(site.variance[columns])
        return profile_of_norms(name, means, variances, within) if sites else None

    def _look(self, images: Tensor) -> list[Site]:
        if self.halves and images.dim() == 4 and min(images.shape[2:]) >= HALVED:
            # Some networks take images of one size alone, and raise whatever they like for others.
            with contextlib.suppress(Exception):
                return self._see(F.avg_pool2d(images, 2))
        return self._see(images)

    def _see(self, images: Tensor) -> list[Site]:
        sight = _Sight(self.sites)
        with sight, contextlib.suppress(_Enough):
            self.encoder.forward(images)  # not its call, which may be compiled
        return sight.sites[: self.sites]


class Site(NamedTuple):
    """What goes into a normalisation layer, and what it remembers."""

    maps: Tensor  # (B, c, …), channels second; (B, c) where there are no positions
    mean: Tensor | None = None
    variance: Tensor | None = None


class _Enough(Exception):
    """All that is needed has been seen; the rest of the pass is left out."""


class _Sight(TorchFunctionMode):
    """Sees what goes into the first normalisation layers, whatever the network's code looks like.

    A mode belongs to its thread, so several threads may look through one network, which hooks would not allow.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.sites: list[Site] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if func is F.batch_norm:
            maps, mean, variance = (*args, given.get("running_mean"), given.get("running_var"))[:3]
            self.sites.append(Site(maps, mean, variance))
        elif func is F.group_norm:
            self.sites.append(Site(args[0]))
        elif func is F.layer_norm:  # of tokens, or of maps with channels last, unless it normalises whole maps
            shape = args[1] if len(args) > 1 else given["normalized_shape"]
            self.sites.append(Site(args[0].movedim(-1, 1) if len(shape) == 1 else args[0]))
        if len(self.sites) >= self.count and not _is_traced():
            raise _Enough
        return func(*args, **given)


def _is_traced() -> bool:
    """Whether a graph is made of the pass. Tracers bear no exception, and leave out what nothing follows from."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def _describe(site: Site) -> tuple[Tensor, ...]:
    """Means and standard deviations (B, c) of some channels."""
    chosen = site.maps[:, spread_over(site.maps.shape[1], CHANNELS)].float()
    if chosen.dim() == 2:
        return (chosen,)
    places = tuple(range(2, chosen.dim()))
    means = chosen.mean(dim=places, keepdim=True)
    # Not by torch's std, which takes longer than the layers before it.
    deviations = (chosen - means).square_().mean(dim=places).sqrt_()
    return means.flatten(1), deviations


def spread_over(count: int, most: int) -> Tensor:
    """At most so many of ``count`` positions, evenly spread."""
    return torch.arange(count) if count <= most else torch.arange(most) * (count - 1) // (most - 1)


@dataclass(frozen=True)
class Router:
    """A linear discriminant between the domains of some profiles."""

    profiles: tuple[DomainProfile, ...]

    @cached_property
    def temperature(self) -> float:
        """By which posteriors are flattened: the geometric mean of what was found for each domain."""
        known = [profile.temperature for profile in self.profiles if profile.temperature is not None]
        return float(torch.tensor(known).double().log().mean().exp()) if known else 1.0

    @cached_property
    def _discriminant(self) -> tuple[Tensor, Tensor]:
        """Weights (D, K) and offsets (K,): of the squared distances only what differs between domains counts."""
        known = [profile.covariance for profile in self.profiles if profile.covariance is not None]
        factor = torch.linalg.cholesky(torch.stack(known).mean(dim=0))  # all domains share their mean
        means = torch.stack([profile.mean for profile in self.profiles], dim=1)
        weights = torch.cholesky_solve(means, factor)
        return weights, (means * weights).sum(dim=0) / -2

    def posterior(self, statistics: Tensor, temperature: float | None = None) -> Tensor:
        """The probability (B, K) of each domain."""
        for profile in self.profiles:
            profile.check_fits(profile.mean, statistics)
        if len(self.profiles) == 1:
            return torch.ones(statistics.shape[0], 1, dtype=torch.float64)
        weights, offsets = self._discriminant
        return ((statistics @ weights + offsets) / (temperature or self.temperature)).softmax(dim=1)

    def unknown(self, statistics: Tensor) -> Tensor:
        """Which images (B,) are farther from every domain than all but a hundredth of its own images.

        A domain of which only BatchNorm statistics are known has no such limit: what is nearest to it is not unknown.
        """
        apart = [profile.distance(statistics) > profile.limit for profile in self.profiles if profile.limit is not None]
        far = torch.stack(apart, dim=1).all(dim=1) if apart else torch.zeros(statistics.shape[0], dtype=torch.bool)
        limitless = torch.tensor([profile.limit is None for profile in self.profiles])
        return far & ~limitless[self.posterior(statistics).argmax(dim=1)]


def new_profile(name: str, statistics: Tensor, others: tuple[DomainProfile, ...], late: bool) -> DomainProfile:
    """The profile of a new domain beside ``others``, with the temperature at which its images find it best.

    Each image is judged by a profile that was made without it.
    """
    profile = make_profile(name, statistics, late)
    if not others:
        return profile
    statistics = statistics.double().cpu()
    fits = torch.zeros(len(TEMPERATURES), dtype=torch.float64)
    for fold, part in crossfitted(name, statistics):
        router = Router((*others, part))
        for place, temperature in enumerate(TEMPERATURES):
            fits[place] += router.posterior(statistics[fold], temperature)[:, -1].clamp(min=1e-300).log().sum()
    return replace(profile, temperature=TEMPERATURES[int(fits.argmax())])
