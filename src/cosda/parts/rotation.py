"""By how many quarter turns was an image rotated? A task without labels, and the small head that answers it.

The head is made ready on the frozen model before adaptation begins, so it has a loop of its own: the runner's loop
trains what a method adapts, while here the network stays. As nothing but the head changes, each image is passed
once in each of its four directions, and all epochs of the head work on these features.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from cosda.errors import CosdaError
from cosda.models.bn_folding import evaluating
from cosda.models.network import Network
from cosda.parts.bank import Sweepable
from cosda.randomness import stream

BATCH, MOMENTUM, DECAY = 64, 0.9, 1e-3  # of the head's own training, as in SHOT++'s code


def rotate(images: Tensor, turns: Tensor) -> Tensor:
    """Rotate each image (B, 3, S, S) by its own number of quarter turns (B,), counter-clockwise as torch.rot90."""
    if images.dim() != 4 or images.shape[2] != images.shape[3]:
        raise CosdaError(
            f"a batch of shape {tuple(images.shape)} cannot be rotated by quarter turns: images must be square. "
            "Use shot, which has no rotation task."
        )
    turned = images.clone()
    for k in (1, 2, 3):
        chosen = turns == k
        turned[chosen] = torch.rot90(images[chosen], k, (2, 3))
    return turned


def draw_turns(count: int, rng: torch.Generator, device: torch.device) -> Tensor:
    """k ∈ {0, 1, 2, 3} for each image."""
    return torch.randint(4, (count,), generator=rng).to(device)


def new_head(width: int, weight_normed: bool, device: torch.device) -> nn.Module:
    """r: R^2d → R^4. It starts from the same weights in every run; torch's global generator is not touched."""
    head: nn.Linear = nn.utils.skip_init(nn.Linear, 2 * width, 4)  # type: ignore[no-untyped-call]
    nn.init.xavier_normal_(head.weight, generator=stream(0, "rotation head"))
    nn.init.zeros_(head.bias)
    return (weight_norm(head) if weight_normed else head).to(device)


def rotation_loss(head: nn.Module, upright: Tensor, turned: Tensor, turns: Tensor) -> Tensor:
    """Cross-entropy of r([f(x) ; f(rot_k x)]) with label k, batch mean."""
    return F.cross_entropy(head(torch.cat([upright, turned], dim=1)), turns)


def train_head(
    head: nn.Module, network: Network, loader: Sweepable, epochs: int, rate: float, rng: torch.Generator
) -> float:
    """Train the head on the network as it is, leave it at its best epoch, and return the accuracy of that.

    SGD whose rate falls as (1 + 10·t/T)^-0.75. The accuracy is that of all images in all four directions.
    """
    features = _turned_features(network, loader)
    optimiser = torch.optim.SGD(head.parameters(), rate, MOMENTUM, weight_decay=DECAY, nesterov=True)
    steps = -(-len(features) // BATCH)
    # A copy: `state_dict` alone would go on changing with the head, and the last epoch would pass for the best.
    best, kept = -1.0, copy.deepcopy(head.state_dict())
    for epoch in range(epochs):
        order = torch.randperm(len(features), generator=rng).to(features.device)
        for step in range(steps):
            rows = order[step * BATCH : (step + 1) * BATCH]
            turns = draw_turns(len(rows), rng, features.device)
            loss = rotation_loss(head, features[rows, 0].float(), features[rows, turns].float(), turns)
            for group in optimiser.param_groups:
                group["lr"] = rate * (1 + 10 * (epoch * steps + step) / (epochs * steps)) ** -0.75
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        accuracy = _accuracy(head, features)
        if accuracy > best:
            best, kept = accuracy, copy.deepcopy(head.state_dict())
    head.load_state_dict(kept)
    return best


def _turned_features(network: Network, loader: Sweepable) -> Tensor:
    """f(rot_k x) of all images and all k: (N, 4, d), in half precision, because it is four times a bank."""
    found = []
    with evaluating(network) as fast:
        for batch in loader.sweep("weak"):
            directions = [rotate(batch.images, torch.full_like(batch.index, k)) for k in range(4)]
            found.append(torch.stack([fast(images).features.half() for images in directions], dim=1))
    return torch.cat(found)


@torch.no_grad()
def _accuracy(head: nn.Module, features: Tensor) -> float:
    right = 0
    for start in range(0, len(features), BATCH):
        rows = features[start : start + BATCH].float()
        for k in range(4):
            right += int((head(torch.cat([rows[:, 0], rows[:, k]], dim=1)).argmax(dim=1) == k).sum())
    return right / (4 * len(features))
