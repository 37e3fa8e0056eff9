"""Batches: unlabelled ones for methods, labelled ones for source training and evaluation.

Order and augmentation depend on (seed, stage, epoch) alone. Images are read by a thread while the network works;
views are then made of whole batches on the device. Of several processes each reads, and makes views of, its own rows
of a batch; then all get the whole.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from cosda.data.domain import Domain, Index, Items, Undecoded
from cosda.data.edges import EdgeMixing
from cosda.data.views import Draw, make_views
from cosda.distributed import collectives
from cosda.preprocessing import Preprocessing
from cosda.randomness import derive, stream
from cosda.types import Batch

T = TypeVar("T")

# Numbers of which views are made at once, if a batch has fewer: for small images calls cost more than their work.
TOGETHER = 2**21


@dataclass
class Loader:
    """Batches of some positions of a domain's images. It knows nothing of labels."""

    items: Items
    positions: Index
    preprocessing: Preprocessing
    device: torch.device
    batch_size: int
    seed: int = 0
    epoch_images: int = 0  # at most so many images an epoch; 0 is all
    edges: EdgeMixing | None = None  # mixed into all training views of images, never into test views
    now: int = 0  # the epoch for which sweeps make their views
    alone: bool = False  # read by this process alone, even where there are others

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return len(self._cut(np.arange(len(self))))

    @property
    def epoch_length(self) -> int:
        """Images in an epoch."""
        return sum(map(len, self._cut(np.arange(len(self)))))

    def begin_epoch(self, epoch: int) -> None:
        """From now on views are made for this epoch: sweeps see other boxes, and the last epochs may have no edges."""
        self.now = epoch
        if self.edges is not None:
            self.edges.epoch = epoch

    def epoch(self, stage: int, epoch: int, views: tuple[str, ...] = ("weak",)) -> Iterator[Batch]:
        """One epoch in random order."""
        order = torch.randperm(len(self), generator=stream(self.seed, stage, epoch, "order")).numpy()
        base = derive(self.seed, stage, epoch, "views")
        return self._batches(self._cut(order), views, base)

    def sweep(self, view: str = "test") -> Iterator[Batch]:
        """All images once, in order of their index."""
        order = np.arange(len(self))
        chunks = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        return self._batches(chunks, (view,), derive(self.seed, "sweep", self.now))

    def _cut(self, order: Index) -> list[Index]:
        """An epoch's batches. A last batch of one image is left out: it has no statistics of its own."""
        if self.epoch_images:
            order = order[: self.epoch_images]
        chunks = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        return chunks[:-1] if len(chunks) > 1 and len(chunks[-1]) == 1 < self.batch_size else chunks

    def _batches(self, chunks: list[Index], views: tuple[str, ...], base: int) -> Iterator[Batch]:
        together = max(1, TOGETHER // (self.batch_size * math.prod(self.items.shape[1:])))

        def read() -> Iterator[tuple[list[Index], list[Draw], Tensor]]:
            for start in range(0, len(chunks), together):
                group = chunks[start : start + together]
                draws = [self._draw(len(chunk), stream(base, start + i)) for i, chunk in enumerate(group)]
                here = np.concatenate([chunk[draw.here] for chunk, draw in zip(group, draws, strict=True)])
                yield group, draws, torch.from_numpy(np.ascontiguousarray(self.items[self.positions[here]]))

        for group, draws, items in prefetched(read()):
            items = items.to(self.device, non_blocking=True)
            made = [self._views(view, items, draws) for view in views]
            for chunk, *images in zip(group, *made, strict=True):
                yield Batch(tuple(images), torch.from_numpy(chunk).to(self.device))

    def _draw(self, count: int, rng: torch.Generator) -> Draw:
        """Of several processes each has its own part of a batch at hand."""
        return Draw(rng, count, slice(None) if self.alone else collectives.share(count))

    def _views(self, name: str, items: Tensor, draws: list[Draw]) -> Iterator[Tensor]:
        """One view of several batches, batch by batch."""
        made = make_views(name, items, self.preprocessing, draws)
        for view, draw in zip(torch.split(made, [draw.at_hand for draw in draws]), draws, strict=True):
            if self.edges is not None and name != "test" and view.dim() == 4:  # feature vectors have no edges
                view = self.edges(view, self.preprocessing)
            yield view if self.alone else collectives.gather_rows(view, draw.total)


def open_loader(
    domain: Domain,
    split: str,
    preprocessing: Preprocessing,
    device: torch.device,
    batch_size: int,
    seed: int = 0,
    epoch_images: int = 0,
    edges: EdgeMixing | None = None,
) -> Loader:
    """A loader of one split of a domain whose images can be read (see `pack`)."""
    if isinstance(domain.items, Undecoded):
        raise TypeError(f"the images of {domain.name} are not decoded yet; pack the domain first")
    positions = domain.train if split == "train" else domain.test
    return Loader(domain.items, positions, preprocessing, device, batch_size, seed, epoch_images, edges)


def prefetched(source: Iterable[T], depth: int = 2) -> Iterator[T]:
    """Let a thread stay ``depth`` items ahead; its errors are raised here, and it ends when the reader does."""
    ready: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(last: bool, item: T | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                return ready.put((last, item), timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in source:
                put(False, item)
                if stopped.is_set():
                    return
            put(True, None)
        except BaseException as error:
            put(True, error)

    thread = threading.Thread(target=work, name="cosda-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            last, item = ready.get()
            if isinstance(item, BaseException):
                raise item
            if last:
                return
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()
