"""A memory of the target domain: features and predictions of every training image, and who is near whom.

The search goes through the bank in blocks, so it needs one block of memory beside it, never queries × bank.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from cosda.errors import CosdaError
from cosda.models.bn_folding import evaluating
from cosda.models.network import Network
from cosda.types import Batch, Output

BLOCK_BYTES = 64 * 2**20  # smaller blocks make the products slower, larger ones no faster (benchmarks/neighbours.py)
# Images from which "auto" takes faiss. On two cores its exact search is slower than this one at 150,000.
FAISS_FROM = 1_000_000
GROUP = 32  # keys whose best is found first, see `_best`

Backend = Literal["torch", "faiss", "auto"]


class Sweepable(Protocol):
    """Images that can be gone through in order of their index."""

    def __len__(self) -> int: ...

    def sweep(self, view: str = "test") -> Iterator[Batch]:
        """All images once, in order of their index."""
        ...


@dataclass
class Bank:
    """Unit features (N, d) and class probabilities (N, C) by the image's index.

    Features have length 1 unless `update` is told to leave averaged ones as they are.
    """

    features: Tensor
    scores: Tensor
    backend: Backend = "torch"
    block_bytes: int = BLOCK_BYTES

    @classmethod
    def build(cls, network: Network, loader: Sweepable, view: str = "weak", dtype: torch.dtype = torch.float32) -> Bank:
        """One pass in eval mode; ``dtype`` half halves the memory."""
        bank: Bank | None = None
        with evaluating(network) as fast:
            for batch in loader.sweep(view):
                output = fast(batch.images)
                if bank is None:
                    with torch.inference_mode(False):  # tensors of inference mode cannot take part in training
                        features, scores = (
                            part.new_empty((len(loader), part.shape[1]), dtype=dtype) for part in output
                        )
                    bank = cls(features, scores)
                bank.update(batch.index, output)
        if bank is None:
            raise CosdaError("there are no training images to remember.")
        return bank

    @torch.no_grad()
    def update(self, index: Tensor, output: Output, keep: float = 0.0, unit: bool = True) -> None:
        """row ← keep·row + (1 - keep)·new for a batch, where new features have length 1.

        Args:
            index: the images of the batch (B,).
            output: what was just said of them.
            keep: the share of the old rows that stays.
            unit: bring averaged features back to length 1. Otherwise they are shorter the more they have moved, and
                found as neighbours less often.
        """
        features = F.normalize(output.features.detach())
        scores = output.logits.detach().softmax(dim=1)
        if keep:
            features = keep * self.features[index].to(features.dtype) + (1 - keep) * features
            features = F.normalize(features) if unit else features
            scores = keep * self.scores[index].to(scores.dtype) + (1 - keep) * scores
        self.features[index] = features.to(self.features.dtype)
        self.scores[index] = scores.to(self.scores.dtype)

    def recall(self, index: Tensor) -> Output:
        """What was said of images when they were last seen; logits up to a constant."""
        return Output(self.features[index].float(), self.scores[index].float().log())

    def neighbours(self, index: Tensor, count: int) -> Tensor:
        """The ``count`` nearest others (…, count) of images in the bank (…); fewer where the bank has fewer."""
        # Neighbours share neighbours: search for each one once.
        loader, where = torch.unique(index, return_inverse=True)
        found = nearest(
            self.features[loader],
            self.features,
            count,
            own=loader,
            block_bytes=self.block_bytes,
            backend=self.backend,
        )
        return found[where]

    def state_dict(self) -> dict[str, Tensor]:
        """Both tensors."""
        return {"features": self.features, "scores": self.scores}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Bank:
        """The reverse of `state_dict`; the search is torch's until said otherwise."""
        return cls(state["features"].clone(), state["scores"].clone())


@torch.no_grad()
def nearest(
    queries: Tensor,
    keys: Tensor,
    count: int,
    own: Tensor | None = None,
    block_bytes: int = BLOCK_BYTES,
    backend: Backend = "torch",
) -> Tensor:
    """Positions (B, count) of the keys with the largest dot product, best first; ``own`` (B,) are left out.

    A query's own position is masked and not guessed to be the first hit, which duplicates would make wrong. Where
    there are fewer than ``count`` others, all of them are given.
    """
    count = max(0, min(count, len(keys) - (own is not None)))
    if count == 0 or len(queries) == 0:
        return torch.empty((len(queries), count), dtype=torch.long, device=queries.device)
    if _wants_faiss(backend, keys):
        return _by_faiss(queries, keys, count, own)
    # A row of a block: a similarity to each query, a share of the groups' maxima, and a float copy of a half key.
    row = 4 * len(queries) * 9 // 8 + (0 if keys.dtype == torch.float32 else 4 * keys.shape[1])
    sorting = 32 * len(queries) * (count + 1) * GROUP  # what `_best` takes beside it
    rows = (block_bytes - sorting) // row // GROUP * GROUP
    if rows < min(len(keys), 4 * count * GROUP) and len(queries) > 1:  # too many queries for one block
        halves = zip(queries.tensor_split(2), own.tensor_split(2) if own is not None else (None, None), strict=True)
        return torch.cat([nearest(some, keys, count, mine, block_bytes, backend) for some, mine in halves])

    rows, queries = min(len(keys), max(GROUP, rows)), queries.float()
    room = queries.new_empty((rows, len(queries)))
    best = queries.new_empty((len(queries), 0))
    place = torch.empty((len(queries), 0), dtype=torch.long, device=queries.device)
    for start in range(0, len(keys), rows):
        block = keys[start : start + rows].float()
        similarity = torch.mm(block, queries.T, out=room[: len(block)])  # this way round the product is fastest
        if own is not None:
            inside = ((own >= start) & (own < start + len(block))).nonzero()[:, 0]
            similarity[own[inside] - start, inside] = -torch.inf
        values, found = _best(similarity, count)
        values, found = torch.cat([best, values], 1), torch.cat([place, found + start], 1)
        best, order = values.topk(min(count, values.shape[1]), dim=1)
        place = found.gather(1, order)
    return place


def _best(similarity: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Values and positions (B, count) of the largest entries of each column of (N, B).

    The best ``count`` lie in the ``count`` groups whose maxima are largest, so only these are sorted.
    """
    size, columns = similarity.shape
    whole = size - size % GROUP
    maxima = similarity[:whole].view(-1, GROUP, columns).amax(dim=1).T  # (B, groups)
    groups = maxima.topk(min(count, maxima.shape[1]), dim=1).indices
    within = torch.arange(GROUP, device=similarity.device)
    tail = torch.arange(whole, size, device=similarity.device).expand(columns, -1)
    places = torch.cat([(groups[:, :, None] * GROUP + within).flatten(1), tail], dim=1)
    values, order = similarity.T.gather(1, places).topk(min(count, places.shape[1]), dim=1)
    return values, places.gather(1, order)


def _wants_faiss(backend: Backend, keys: Tensor) -> bool:
    fits = keys.dtype == torch.float32 and keys.device.type == "cpu"
    if backend == "faiss" and not fits:
        raise CosdaError("faiss searches float32 banks in main memory; take search=torch for half ones and on devices.")
    if backend == "faiss" and not find_spec("faiss"):
        raise CosdaError("the search by faiss needs it installed: pip install 'cosda[faiss]', or take search=torch.")
    return backend == "faiss" or (backend == "auto" and fits and len(keys) >= FAISS_FROM and bool(find_spec("faiss")))


def _by_faiss(queries: Tensor, keys: Tensor, count: int, own: Tensor | None) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of its SWIG types, at import
        import faiss
    more = count + (own is not None)
    hits = faiss.knn(queries.float().numpy(), keys.numpy(), more, metric=faiss.METRIC_INNER_PRODUCT)[1]
    found = torch.from_numpy(hits)
    if own is None:
        return found
    drop = found == own[:, None]
    drop[:, -1] |= ~drop.any(dim=1)  # so many duplicates that the image itself is not among the hits
    return found[~drop].view(len(queries), count)
