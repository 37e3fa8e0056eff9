"""Small networks and made-up domains for tests. Kinds: `batch_norm` and `plain` see images, `features` vectors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

from cosda.data.domain import Benchmark, Domain
from cosda.data.loader import Loader
from cosda.models.network import Network
from cosda.preprocessing import FEATURE_VECTORS, Preprocessing
from cosda.settings import parse_value

CPU = torch.device("cpu")
CLASSES = ("a", "b", "c")
SIDE, WIDTH = 16, 12
SEEN = Preprocessing(size=SIDE, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), flip=True)


def tiny_network(kind: str = "batch_norm", seed: int = 0) -> Network:
    """A network of three classes; `plain` has no BatchNorm anywhere."""
    torch.manual_seed(seed)
    if kind == "features":
        return Network.build(nn.Identity(), WIDTH, 6, len(CLASSES))
    norm: nn.Module = nn.BatchNorm2d(8) if kind == "batch_norm" else nn.GroupNorm(2, 8)
    encoder = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), norm, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    network = Network.build(encoder, 32, 6, len(CLASSES))
    return network if kind == "batch_norm" else Network(encoder, nn.Linear(32, 6), nn.Linear(6, len(CLASSES)))


def tiny_domain(name: str = "one", count: int = 30, seed: int = 0, features: bool = False) -> Domain:
    """Three classes that a colour (or a direction) tells apart, under a tint (or an offset) of the domain's own."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count, dtype=np.int64) % 3
    if features:
        items = rng.normal(0, 1, (count, WIDTH)).astype(np.float32) + 0.5 * seed
        items[np.arange(count), labels] += 3
    else:
        colours = np.eye(3)[labels][:, None, None] * 120 + 40 + 10 * seed
        items = np.clip(colours + rng.normal(0, 30, (count, SIDE, SIDE, 3)), 0, 255).astype(np.uint8)
    order = np.arange(count, dtype=np.int64)
    return Domain(name, items, labels, train=order[: 2 * count // 3], test=order[2 * count // 3 :])


def tiny_benchmark(features: bool = False) -> Benchmark:
    """The domains one, two and three."""
    names = ("one", "two", "three")
    domains = {name: tiny_domain(name, seed=number, features=features) for number, name in enumerate(names)}
    return Benchmark("tiny", domains, CLASSES, protocol="inductive")


def tiny_loader(kind: str = "batch_norm", count: int = 20, batch_size: int = 8, seed: int = 0) -> Loader:
    """Unlabelled training images, or feature vectors, for a tiny network."""
    domain = tiny_domain("target", count, seed=3, features=kind == "features")
    how = FEATURE_VECTORS if kind == "features" else SEEN
    assert not hasattr(domain.items, "root")
    return Loader(domain.items, np.arange(count, dtype=np.int64), how, CPU, batch_size, seed)  # type: ignore[arg-type]


def noise(count: int = 4, height: int = 32, width: int = 32, seed: int = 0) -> torch.Tensor:
    """Images in which no pixel says anything of the next."""
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, height, width, 3), generator=rng, dtype=torch.uint8)


def smooth(count: int = 4, height: int = 48, width: int = 48) -> torch.Tensor:
    """Images that change slowly, each in its own way."""
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    waves = [torch.stack([x, y, 0.5 + 0.5 * torch.sin(3 * x + 2 * y + n)], -1) for n in range(count)]
    return (255 * torch.stack(waves)).round().to(torch.uint8)


def read(changes: Iterable[str]) -> dict[str, Any]:
    """Settings from texts such as ``epochs=2``; the last of two counts."""
    return {key: parse_value(value) for key, _, value in (text.partition("=") for text in changes)}
