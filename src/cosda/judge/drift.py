"""Do new images come from a domain of which nothing but a profile is left?

A permutation test. A profile holds means over groups of 20 images, put together at random; new images are put together
in the same way. If they come from the same domain, nothing tells which groups are the old ones and which the new ones:
the groups are dealt again thousands of times, and the p-value is the share of deals in which the two heaps lie at least
as far apart as they do. That holds for any distribution, any network and any number of images; all that it asks is that
images are drawn independently. How far heaps lie apart is measured after whitening by all groups together, old and new,
so that the measure does not know either which are which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from cosda.models.profile import FEWEST, GROUPS, PLACES, DomainProfile, group_means
from cosda.randomness import stream

DEALS = 9999
RIDGE = 1.0  # added to the variances of all directions, in units of their mean; ten times as much does as well

Seen = Mapping[str, Tensor]  # place -> (N, d), a row for each image
PValues = dict[str, float]  # by place


def p_value(known: Tensor, new: Tensor) -> float:
    """How often groups (N, d) of known images and groups (M, d) of new ones differ as much by chance."""
    pooled = torch.cat([known, new]).double()
    # What changes by rounding alone tells nothing.
    least = 1e-6 * pooled.abs().amax(dim=0) + 1e-300
    centred = (pooled - pooled.mean(dim=0)) / pooled.std(dim=0).clamp(min=least)
    directions, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    variances = sizes.square()
    white = directions * (variances / (variances + RIDGE * variances.mean() + 1e-300)).sqrt()
    apart = (_deals(len(known), len(new), DEALS) @ white).square().sum(dim=1)
    # The first is no deal but what was found; it counts as one, so that no p-value is 0.
    return float((apart >= apart[0] * (1 - 1e-9)).double().mean())


@lru_cache(maxsize=16)
def _deals(known: int, new: int, count: int) -> Tensor:
    """Weights (1 + count, N + M) of groups in the way from one heap's mean to the other's: as it is, then as dealt."""
    roles = torch.cat([torch.full((known,), -1 / known), torch.full((new,), 1 / new)]).double()
    dealt = torch.rand(count, known + new, generator=stream(known, "deals", new)).argsort(dim=1)
    return torch.cat([roles[None], roles[dealt]])


def enough(known: int, new: int, alpha: float) -> bool:
    """Whether so many groups can give a p-value that is below alpha after the correction for several places."""
    return max(1 / math.comb(known + new, new), 1 / (1 + DEALS)) <= alpha / len(PLACES)


def fewest(profile: DomainProfile, alpha: float) -> int | None:
    """How many new images can be compared with a profile at least; None where no number of them can be."""
    known = max(map(len, profile.groups.values()), default=0)
    return next((new * FEWEST for new in range(1, GROUPS + 1) if known and enough(known, new, alpha)), None)


def compare(profile: DomainProfile, seen: Seen, alpha: float) -> PValues:
    """The p-value of images at each place of which a profile holds enough groups for one below alpha."""
    for place, known in profile.groups.items():
        profile.check_fits(known, seen[place])
    groups = {place: group_means(seen[place]) for place in profile.groups}
    return {
        place: p_value(profile.groups[place], new)
        for place, new in groups.items()
        if enough(len(profile.groups[place]), len(new), alpha)
    }


def corrected(found: PValues) -> float:
    """One p-value for all places (Bonferroni)."""
    return min(1.0, len(found) * min(found.values()))
