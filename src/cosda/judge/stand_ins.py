"""Inputs that stand in for those a network was trained on, which are gone: the network itself still remembers them.

Beginning with noise, inputs are changed until the network is confident of a class, and until its BatchNorm layers see
the statistics that they remember (Yin et al., "Dreaming to Distill", CVPR 2020, https://arxiv.org/abs/1912.08795). A
model that was adapted and answers such inputs otherwise has forgotten; how often it does follows how much was lost on
the true images (docs/verdict.md). A network without BatchNorm remembers nothing of the kind.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosda.models.network import Network
from cosda.models.profile import DomainProfile
from cosda.models.router import Norm, spread_over
from cosda.randomness import stream

MOST, FEWEST = 200, 64  # inputs that are made
NUMBERS = 200 * 3 * 64 * 64  # that these may have together: many small inputs, or few large ones
STEPS = 40
RATE = 0.05  # of Adam, in units of the inputs' own deviation
CLASS_WEIGHT = 0.3  # of the classes beside the statistics
DRAWN = 500  # feature vectors that are drawn from a profile
RIDGE = 0.1  # of the regression of numbers that a profile lacks, in units of the mean variance of those it has


def stand_ins(network: Network, like: Tensor, seed: int = 0) -> Tensor | None:
    """Inputs (N, …) that a network takes for those that it was trained on; None where it remembers nothing.

    Args:
        network: the network, which stays as it is.
        like: any of its inputs (B, …), which tell shape and scale.
        seed: of the noise.
    """
    network = copy.deepcopy(network).eval().requires_grad_(False)
    norms = [layer for layer in network.modules() if isinstance(layer, Norm) and layer.running_mean is not None]
    if not norms:
        return None
    count = max(FEWEST, min(MOST, NUMBERS // like[0].numel()))
    places = (0,) if like.dim() == 2 else (0, 2, 3)
    middle, scale = like.mean(dim=places, keepdim=True), like.std(dim=places, keepdim=True)
    drawn = torch.randn((count, *like.shape[1:]), generator=stream(seed, "stand-ins")).to(like)
    noise = drawn.requires_grad_(True)
    classes = network.forward(like[:1]).logits.shape[1]
    wanted = (torch.arange(count) % classes).to(like.device)
    apart: list[Tensor] = []
    hooks = [
        norm.register_forward_pre_hook(lambda layer, given: apart.append(_apart(layer, given[0]))) for norm in norms
    ]
    optimiser = torch.optim.Adam([noise], lr=RATE)
    try:
        with torch.enable_grad():
            for _ in range(STEPS):
                apart.clear()
                logits = network.forward(middle + scale * noise).logits
                loss = torch.stack(apart).sum() + CLASS_WEIGHT * F.cross_entropy(logits, wanted)
                (noise.grad,) = torch.autograd.grad(loss, noise)
                optimiser.step()
    finally:
        for hook in hooks:
            hook.remove()
    return (middle + scale * noise).detach()


def drawn(profile: DomainProfile | None, like: Tensor, seed: int = 0) -> Tensor | None:
    """Feature vectors (N, d) drawn from the profile of a domain; None where it is no profile of such vectors.

    Made to be of a class, feature vectors are easier than any true ones: hardly a model forgets them. These have the
    mean and the covariance of the domain, and lie between classes as often as they come. A profile holds some of their
    numbers. The others follow from these, as far as they do so in other feature vectors ``like`` (B, d), and what they
    have beside that is taken from one of those.
    """
    if profile is None or profile.covariance is None or not profile.late or like.dim() != 2:
        return None
    columns = spread_over(like.shape[1], len(profile.mean))
    if len(columns) != len(profile.mean):
        return None
    chance, others = stream(seed, "drawn"), like.double().cpu()
    noise = torch.randn((DRAWN, len(columns)), generator=chance, dtype=torch.float64)
    known = profile.mean + noise @ torch.linalg.cholesky(profile.covariance).T
    middle = others.mean(dim=0)
    apart = others - middle
    seen = apart[:, columns]
    products = seen.T @ seen
    ridge = RIDGE * products.diagonal().mean() * torch.eye(len(products), dtype=products.dtype)
    follows = torch.linalg.solve(products + ridge + 1e-12 * torch.eye(len(products)), seen.T @ apart)
    beside = (apart - seen @ follows)[torch.randint(len(like), (DRAWN,), generator=chance)]
    made = middle + (known - middle[columns]) @ follows + beside
    made[:, columns] = known
    vectors: Tensor = made.clamp(min=float(others.min()))  # features that went through a ReLU are never below 0
    return vectors.to(like)


def _apart(norm: nn.Module, maps: Tensor) -> Tensor:
    """How far the statistics of a batch are from those that a BatchNorm layer remembers."""
    assert isinstance(norm, Norm)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    places = (0, *range(2, maps.dim()))
    mean = maps.mean(dim=places, keepdim=True)
    variance = (maps - mean).square().mean(dim=places)  # not by torch's var, which takes several times as long
    remembered = norm.running_var + norm.eps
    away = (mean.flatten() - norm.running_mean).square() / remembered
    return away.mean() + ((variance + norm.eps).log() - remembered.log()).square().mean()
