"""A memory of the target domain: features and predictions of every training picture, and who is near whom.

The search goes through the bank in blocks, so it needs one block of memory beside it, never queries × bank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from cosda.models.network import Network, evaluating
from cosda.types import Batch, Output

BLOCK_BYTES = 64 * 2**20


class Sweepable(Protocol):
    """Pictures that can be gone through in order of their index."""

    def __len__(self) -> int: ...

    def sweep(self, view: str = "test") -> Iterator[Batch]:
        """All pictures once, in order of their index."""
        ...


@dataclass
class Bank:
    """Unit features (N, d) and class probabilities (N, C) by the picture's index."""

    features: Tensor
    scores: Tensor

    @classmethod
    def build(
        cls, network: Network, pictures: Sweepable, view: str = "weak", dtype: torch.dtype = torch.float32
    ) -> Bank:
        """One pass in eval mode; ``dtype`` half halves the memory."""
        features, scores = [], []
        with evaluating(network):
            for batch in pictures.sweep(view):
                output = network(batch.images)
                features.append(F.normalize(output.features).to(dtype))
                scores.append(output.logits.softmax(dim=1).to(dtype))
        # Clones, because tensors made in inference mode could not take part in training.
        return cls(torch.cat(features).clone(), torch.cat(scores).clone())

    @torch.no_grad()
    def update(self, index: Tensor, output: Output, keep: float = 0.0) -> None:
        """row ← keep·row + (1 - keep)·new for a batch; features stay unit vectors."""
        features = F.normalize(output.features.detach())
        scores = output.logits.detach().softmax(dim=1)
        if keep:
            features = F.normalize(keep * self.features[index].to(features.dtype) + (1 - keep) * features)
            scores = keep * self.scores[index].to(scores.dtype) + (1 - keep) * scores
        self.features[index] = features.to(self.features.dtype)
        self.scores[index] = scores.to(self.scores.dtype)

    def neighbours(self, index: Tensor, count: int) -> Tensor:
        """The ``count`` nearest pictures (B, count) of pictures in the bank, never themselves."""
        return nearest(self.features[index], self.features, count, own=index)

    def state_dict(self) -> dict[str, Tensor]:
        """Both tensors."""
        return {"features": self.features, "scores": self.scores}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Bank:
        """The reverse of `state_dict`."""
        return cls(state["features"], state["scores"])


@torch.no_grad()
def nearest(
    queries: Tensor, keys: Tensor, count: int, own: Tensor | None = None, block_bytes: int = BLOCK_BYTES
) -> Tensor:
    """Positions (B, count) of the keys with the largest dot product, best first; ``own`` (B,) are left out.

    A query's own position is masked and not guessed to be the first hit, which duplicates would make wrong.
    """
    available = len(keys) - (own is not None)
    count = min(count, available)
    rows = max(count, block_bytes // (4 * max(1, len(queries))))
    best = queries.new_empty((len(queries), 0), dtype=torch.float32)
    place = torch.empty((len(queries), 0), dtype=torch.long, device=queries.device)
    queries = queries.float()
    for start in range(0, len(keys), rows):
        block = keys[start : start + rows].float()
        likeness = queries @ block.T
        if own is not None:
            inside = (own >= start) & (own < start + len(block))
            likeness[inside, own[inside] - start] = -torch.inf
        values, found = likeness.topk(min(count, len(block)), dim=1)
        values, found = torch.cat([best, values], 1), torch.cat([place, found + start], 1)
        best, order = values.topk(min(count, values.shape[1]), dim=1)
        place = found.gather(1, order)
    return place
