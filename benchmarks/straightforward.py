"""The two baselines: the bare arithmetic, and the straightforward way that one would write from the paper.

The bare arithmetic is what cannot be left out: the forward and backward passes of a step in a dozen lines of plain
torch, on tensors in memory. The straightforward way decodes each image anew with Pillow in a DataLoader, keeps
torch's default memory order, has the student pass over both the mixed and the clean batch, averages teacher and student
in a Python loop, and evaluates under `no_grad`. Nothing here uses cosda but for the network itself.
"""

from __future__ import annotations

import copy
import io
import math
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

MEAN, STD = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)


def bare_step(network: nn.Module) -> Callable[[Tensor], None]:
    """A CoSDA step on ready images: teacher's labels, one pass of the student over mixed images, SGD."""
    teacher, student = copy.deepcopy(network).train(), copy.deepcopy(network).train()
    optimiser = torch.optim.SGD(student.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, fused=True)

    def step(images: Tensor) -> None:
        with torch.no_grad():
            labels = F.softmax(teacher(images).logits / 0.07, 1)
        order = torch.randperm(len(images))
        log_p = F.log_softmax(student(0.6 * images + 0.4 * images[order]).logits, 1)
        p = log_p.exp()
        loss = -((0.6 * labels + 0.4 * labels[order]) * log_p).sum(1).mean()
        loss = loss - (p * (log_p - torch.log(p.mean(0) + 1e-5))).sum(1).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def read_image(file: Path | io.BytesIO, size: int, train: bool) -> Tensor:
    """Decode, cut a random box of 75 to 100 % of the area (or none), resize, mirror, normalise: one image."""
    image: Any = Image.open(file).convert("RGB")
    box = _random_box(*image.size) if train else None
    image = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    if train and random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = np.asarray(image, np.float32).transpose(2, 0, 1) / 255
    return torch.from_numpy((pixels - MEAN[:, None, None]) / STD[:, None, None])


def _random_box(width: int, height: int) -> tuple[float, float, float, float]:
    area = width * height * random.uniform(0.75, 1)
    aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
    wide, tall = min(width, math.sqrt(area * aspect)), min(height, math.sqrt(area / aspect))
    left, top = random.uniform(0, width - wide), random.uniform(0, height - tall)
    return left, top, left + wide, top + tall


class Images(Dataset[tuple[Tensor, int]]):
    """Files that are decoded when they are asked for."""

    def __init__(self, files: list[Path], labels: list[int], size: int, train: bool) -> None:
        self.files, self.labels, self.size, self.train = files, labels, size, train

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        return read_image(self.files[position], self.size, self.train), self.labels[position]


def adapt(
    network: nn.Module, files: list[Path], labels: list[int], size: int, epochs: int, batch: int, workers: int
) -> list[float]:
    """A CoSDA adaptation; accuracies before, after each epoch, and at the end with either kind of statistics."""
    teacher, student = copy.deepcopy(network), copy.deepcopy(network)
    step = two_pass_step(teacher, student)
    train = DataLoader(Images(files, labels, size, True), batch, shuffle=True, num_workers=workers)
    test = DataLoader(Images(files, labels, size, False), 128, num_workers=workers)
    merged = [buffer.clone() for buffer in network.buffers()]  # statistics that are measured and handed on
    found = [accuracy(network, test)]
    for epoch in range(epochs):
        teacher.train()  # its own statistics are of no further use
        student.train()
        for images, _ in train:
            if len(images) > 1:
                step(images)
        momentum = 0.99 - 0.09 * (1 + math.cos(math.pi * epoch / epochs)) / 2
        average(list(teacher.parameters()), list(student.parameters()), momentum)
        average(merged, list(student.buffers()), momentum)
        _set_buffers(teacher, merged)
        found.append(accuracy(teacher, test))
    for statistics in (merged, list(student.buffers())):
        _set_buffers(teacher, statistics)
        found.append(accuracy(teacher, test))
    return found


def two_pass_step(teacher: nn.Module, student: nn.Module) -> Callable[[Tensor], None]:
    """A CoSDA step of the straightforward way: the student sees the mixed and the clean batch."""
    optimiser = torch.optim.SGD(student.parameters(), lr=2e-3, momentum=0.9, weight_decay=5e-4)

    def step(images: Tensor) -> None:
        with torch.no_grad():
            labels = F.softmax(teacher(images).logits / 0.07, dim=1)
        share, order = random.betavariate(2, 2), torch.randperm(len(images))
        mixed = F.log_softmax(student(share * images + (1 - share) * images[order]).logits, dim=1)
        consistency = -((share * labels + (1 - share) * labels[order]) * mixed).sum(1).mean()
        p = F.softmax(student(images).logits, dim=1)
        information = (p * (torch.log(p + 1e-5) - torch.log(p.mean(0) + 1e-5))).sum(1).mean()
        optimiser.zero_grad()
        (consistency - information).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def average(slow: list[Tensor], fast: list[Tensor], momentum: float) -> None:
    """slow ← m·slow + (1 - m)·fast, tensor by tensor."""
    with torch.no_grad():
        for one, other in zip(slow, fast, strict=True):
            if one.is_floating_point():
                one.copy_(momentum * one + (1 - momentum) * other)


def _set_buffers(network: nn.Module, values: list[Tensor]) -> None:
    for buffer, value in zip(network.buffers(), values, strict=True):
        buffer.copy_(value)


def accuracy(network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """A plain evaluation loop."""
    network.eval()
    right = total = 0
    with torch.no_grad():
        for images, labels in batches:
            right += int((network(images).logits.argmax(1) == labels).sum())
            total += len(labels)
    return right / total


def fill_bank(network: nn.Module, batches: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Unit features and probabilities of all images, by a plain loop."""
    network.eval()
    features, scores = [], []
    with torch.no_grad():
        for images in batches:
            output = network(images)
            features.append(F.normalize(output.features))
            scores.append(F.softmax(output.logits, dim=1))
    return torch.cat(features), torch.cat(scores)


def expanded_neighbours(bank: Tensor, index: Tensor, near: int, extended: int) -> Tensor:
    """NRC's neighbours of neighbours (B, K, M) as its public code finds them: the bank is expanded B times."""
    distance = bank[index] @ bank.T
    first = distance.topk(near + 1, dim=1).indices[:, 1:]  # (B, K)
    expanded = bank[None].expand(len(index), -1, -1)  # (B, N, d)
    similarity = torch.bmm(bank[first], expanded.permute(0, 2, 1))  # (B, K, N)
    return similarity.topk(extended + 1, dim=2).indices[:, :, 1:]
