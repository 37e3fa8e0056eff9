"""Images that stand in for those of a domain which is gone: what is left of it is its profile.

Images of the new domain are changed, by gradients through the first layers of the incoming network, until these layers
see in them what the profile says they saw in the known domain: its colours, contrast and texture, with other content.
Where the incoming and the adapted model answer differently on such images, what was known is being forgotten.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cosda.models.network import Network
from cosda.models.profile import DomainProfile
from cosda.models.router import Gauge

STEPS = 40
RATE = 0.05  # of Adam, in the units of normalised pixels


def probes(network: Network, profile: DomainProfile, images: Tensor) -> Tensor:
    """Images (B, …) changed until they look to a network as those of a profile do."""
    gauge = Gauge(network.encoder, profile.late, profile.full)
    whitening = profile.whitening.to(torch.float64)
    usual = float(profile.distances[0])  # half of its own images are nearer
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with torch.enable_grad():
            changed = images.detach().clone().requires_grad_(True)
            optimiser = torch.optim.Adam([changed], lr=RATE)
            for _ in range(STEPS):
                distance = ((gauge.seen(changed) - profile.mean) @ whitening).square().sum(dim=1)
                excess = (distance.clamp(min=usual) / usual).log()
                if float(excess.detach().median()) <= 0:
                    break
                (gradient,) = torch.autograd.grad(excess.sum(), changed)
                changed.grad = gradient
                optimiser.step()
    finally:
        for module, mode in modes:
            module.training = mode
    return changed.detach()
