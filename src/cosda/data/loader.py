"""Batches: unlabelled ones for methods, labelled ones for source training and evaluation.

Order and augmentation depend on (seed, stage, epoch) alone. Samples are read by a thread while the network works;
views are then made of the whole batch on the device. Of several processes each reads, and makes views of, its own rows
of a batch; then all get the whole.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from cosda import distributed
from cosda.data.domain import Domain, Files, Index, Items
from cosda.data.edges import EdgeMixing
from cosda.data.views import Rows, make_view
from cosda.preprocessing import Preprocessing
from cosda.randomness import derive, stream
from cosda.types import Batch

T = TypeVar("T")


@dataclass
class Loader:
    """Batches of some positions of a domain's samples. It knows nothing of labels."""

    items: Items
    positions: Index
    preprocessing: Preprocessing
    device: torch.device
    batch_size: int
    seed: int = 0
    epoch_pictures: int = 0  # at most so many pictures an epoch; 0 is all
    edges: EdgeMixing | None = None  # mixed into all training views of pictures, never into test views
    now: int = 0  # the epoch for which sweeps make their views
    alone: bool = False  # read by this process alone, even where there are others

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return len(self._cut(np.arange(len(self))))

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
        """All pictures once, in order of their index."""
        order = np.arange(len(self))
        chunks = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        return self._batches(chunks, (view,), derive(self.seed, "sweep", self.now))

    def _cut(self, order: Index) -> list[Index]:
        """An epoch's batches. A last batch of one picture is left out: it has no statistics of its own."""
        if self.epoch_pictures:
            order = order[: self.epoch_pictures]
        chunks = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        return chunks[:-1] if len(chunks) > 1 and len(chunks[-1]) == 1 < self.batch_size else chunks

    def _batches(self, chunks: list[Index], views: tuple[str, ...], base: int) -> Iterator[Batch]:
        def read() -> Iterator[tuple[Index, Tensor, Rows]]:
            for chunk in chunks:
                rows = Rows(len(chunk), slice(None) if self.alone else distributed.share(len(chunk)))
                yield chunk, torch.from_numpy(np.ascontiguousarray(self.items[self.positions[chunk[rows.here]]])), rows

        for step, (chunk, items, rows) in enumerate(prefetched(read())):
            rng = stream(base, step)
            items = items.to(self.device, non_blocking=True)
            made = tuple(self._view(view, items, rng, rows) for view in views)
            yield Batch(made, torch.from_numpy(chunk).to(self.device))

    def _view(self, name: str, items: Tensor, rng: torch.Generator, rows: Rows) -> Tensor:
        made = make_view(name, items, self.preprocessing, rng, rows)
        if self.edges is not None and name != "test" and made.dim() == 4:  # feature vectors have no edges
            made = self.edges(made, self.preprocessing)
        return made if self.alone else distributed.gather_rows(made, rows.total)


def open_loader(
    domain: Domain,
    split: str,
    preprocessing: Preprocessing,
    device: torch.device,
    batch_size: int,
    seed: int = 0,
    epoch_pictures: int = 0,
    edges: EdgeMixing | None = None,
) -> Loader:
    """A loader of one split of a domain whose samples can be read (see `pack`)."""
    if isinstance(domain.items, Files):
        raise TypeError(f"the pictures of {domain.name} are not decoded yet; pack the domain first")
    positions = domain.train if split == "train" else domain.test
    return Loader(domain.items, positions, preprocessing, device, batch_size, seed, epoch_pictures, edges)


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
