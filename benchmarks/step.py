"""A CoSDA step through the runner against the same forward and backward passes in plain torch on tensors in memory."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.timing import interleaved
from cosda.data.loader import Loader
from cosda.methods.base import Progress
from cosda.methods.cosda import CoSDA
from cosda.models.encoders import Architecture
from cosda.models.network import place
from cosda.preprocessing import FEATURE_VECTORS, Preprocessing
from cosda.randomness import stream
from cosda.run.adapt import Training
from cosda.run.sections import Optimisation

CPU = torch.device("cpu")
CASES = {
    "small ResNet, 32 px, batch 64": ("small", 32, 64, 30),
    "ResNet-18, 128 px, batch 32": ("resnet18", 128, 32, 4),
    "features, 1280 wide, batch 64": ("identity", 0, 64, 200),
}


def measure() -> dict[str, float]:
    """Ratio of a step's time to that of the bare arithmetic."""
    return {name: _ratio(*case) for name, case in CASES.items()}


def _ratio(encoder: str, side: int, batch_size: int, rounds: int) -> float:
    width = 1280 if encoder == "identity" else None
    network = place(Architecture(encoder, 256, 31, width).build(), CPU)
    shape = (2 * batch_size, side, side, 3) if side else (2 * batch_size, 1280)
    items = np.zeros(shape, np.uint8 if side else np.float32)
    how = Preprocessing(size=side) if side else FEATURE_VECTORS
    loader = Loader(items, np.arange(len(items)), how, CPU, batch_size)
    optimisation = Optimisation(epochs=1, batch_size=batch_size)
    training = Training(CoSDA(), copy.deepcopy(network), loader, optimisation, 0, 1, "target")
    training.method.begin_epoch(Progress(1, 0, 1, stream(0)))
    batch = next(iter(loader.epoch(1, 0)))

    teacher, student = copy.deepcopy(network).train(), copy.deepcopy(network).train()
    optimiser = torch.optim.SGD(student.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, fused=True)
    images = batch.images

    def bare() -> None:
        with torch.no_grad():
            labels = F.softmax(teacher(images).logits / 0.07, 1)
        order = torch.randperm(len(images))
        log_p = F.log_softmax(student(0.6 * images + 0.4 * images[order]).logits, 1)
        p = log_p.exp()
        loss = -((0.6 * labels + 0.4 * labels[order]) * log_p).sum(1).mean()
        loss = loss - (p * (log_p - torch.log(p.mean(0) + 1e-5))).sum(1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    seconds = interleaved({"ours": lambda: training._update(training.method.step(batch)), "bare": bare}, rounds)
    return seconds["ours"] / seconds["bare"]
