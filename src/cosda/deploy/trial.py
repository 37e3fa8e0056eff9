"""An exported file on trial: it runs on images, in batches of several sizes, beside the model that it was made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cosda.data.benchmarks import load as load_benchmark
from cosda.data.domain import Items, Undecoded, everything
from cosda.data.inputs import DataLike, load_domain
from cosda.data.views import central_pixels, make_view
from cosda.deploy.format import Array, Run
from cosda.errors import CosdaError
from cosda.models.artifact import Model
from cosda.models.bn_folding import evaluating
from cosda.models.experts import DomainBank
from cosda.models.network import Network, to_device
from cosda.preprocessing import Preprocessing
from cosda.run.evaluate import checked
from cosda.run.machine import Machine
from cosda.run.prepare import main_watcher, readable
from cosda.watch import Watcher

TOLERANCE = 1e-4  # of a probability
SIZES = (1, 3, 17, 32)  # of the first batches, and of all others
EACH = 8  # images of each embedded domain, where none are given; so much noise besides


@dataclass(frozen=True)
class Trial:
    """What the file and the model said of the same images."""

    images: int
    difference: float  # of a probability, at most
    classes: int  # images that the two take for different classes
    untried: tuple[str, ...]  # experts of a bank that had no part in any answer

    @property
    def passed(self) -> bool:
        """Whether the file says what the model says."""
        return self.difference <= TOLERANCE and not self.classes


@contextmanager
def images_for_trial(model: Model, data: DataLike | None, machine: Machine, watcher: Watcher | None) -> Iterator[Items]:
    """Images that a model takes, or some that every program has: of the embedded domains, and noise."""
    with replace(machine, device="cpu").open():
        if data is None:
            yield _own_images() if model.preprocessing.of_images else _own_vectors(model)
            return
        domain = load_domain(data, labels=False, follow_links=machine.follow_links)
        domain = replace(domain, test=everything(len(domain)))
        if (domain.kind == "images") != model.preprocessing.of_images:
            wanted = "images" if model.preprocessing.of_images else "feature vectors"
            raise CosdaError(f"the model takes {wanted}, but --verify names {domain.kind}.")
        packed = readable(domain, model.preprocessing.size, machine, main_watcher(watcher)).domain
        assert not isinstance(packed.items, Undecoded)
        yield packed.items


def _own_images() -> Array:
    rng = np.random.default_rng(0)
    images = [domain.items[np.arange(EACH)] for domain in load_benchmark("digits")]  # type: ignore[index]
    contrasts = np.linspace(10, 120, EACH)[:, None, None, None]
    noise = rng.normal(rng.uniform(40, 215, (EACH, 1, 1, 3)), contrasts, images[0].shape)
    return np.concatenate([*images, noise.clip(0, 255).astype(np.uint8)])


def _own_vectors(model: Model) -> Array:
    width, count = model.architecture.input_width or 0, EACH * 5
    scales = np.geomspace(0.1, 10, count)[:, None]
    return (np.random.default_rng(0).normal(0, scales, (count, width))).astype(np.float32)


def try_out(network: Network, run: Run, items: Items, preprocessing: Preprocessing) -> Trial:
    """Let both answer.

    Raises:
        CosdaError: the file does not run.
    """
    differences, classes, reached = [0.0], 0, torch.zeros(len(network.known) if isinstance(network, DomainBank) else 0)
    with evaluating(to_device(network, torch.device("cpu"))) as fast:
        for batch in _batches(items):
            images = make_view("test", batch, preprocessing, torch.Generator())
            if isinstance(fast, DomainBank):
                output, routing = fast.explain(images)
                reached += (routing.shares > 0).sum(dim=0)
            else:
                output = fast(images)
            wanted = checked(output, images).logits.softmax(dim=1).numpy()
            try:
                found = run(as_input(batch, preprocessing))["probabilities"]
            except Exception as error:  # of a kind that differs between runtimes
                raise CosdaError(
                    f"the exported model does not run on a batch of {len(batch)}: {str(error).splitlines()[0]}. "
                    "Nothing was written. Take another --format."
                ) from None
            differences.append(float(np.abs(found - wanted).max()))  # NaN counts, below
            classes += int((found.argmax(axis=1) != wanted.argmax(axis=1)).sum())
    difference = max(differences) if np.isfinite(differences).all() else float("inf")
    names = network.known if isinstance(network, DomainBank) else ()
    untried = tuple(name for name, images in zip(names, reached.tolist(), strict=True) if not images)
    return Trial(len(items), difference, classes, untried)


def _batches(items: Items) -> Iterator[Tensor]:
    start, sizes = 0, iter(SIZES)
    while start < len(items):
        size = next(sizes, SIZES[-1])
        yield torch.from_numpy(np.ascontiguousarray(items[np.arange(start, min(start + size, len(items)))]))
        start += size


def as_input(items: Tensor, preprocessing: Preprocessing) -> Array:
    """What an exported model takes: pixels (B, S, S, 3), or feature vectors."""
    if items.dim() == 2:
        return items.numpy()
    return np.ascontiguousarray(central_pixels(items, preprocessing).permute(0, 2, 3, 1).numpy())
