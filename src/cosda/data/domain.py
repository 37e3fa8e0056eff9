"""A domain is a name, images and, where they exist, labels and a train/test split.

A benchmark is an ordered set of domains that share one list of classes. Both are plain values: reading them from what
users have is the work of `inputs` and `benchmarks`, decoding pixels that of `cache`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from cosda.errors import CosdaError, nearest
from cosda.files import as_text

if TYPE_CHECKING:
    from PIL.Image import Image

Index = NDArray[np.int64]
Headline = Literal["top1", "per-class"]
Protocol_ = Literal["transductive", "inductive"]


@dataclass(frozen=True)
class Files:
    """Images on disk, not decoded yet: ``root / name`` for every name."""

    root: Path
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def path(self, position: int) -> Path:
        """Where the image at ``position`` lies."""
        return self.root / self.names[position]

    def where(self, position: int) -> str:
        """The same for a message."""
        return as_text(str(self.path(position)))


@dataclass(frozen=True, eq=False)
class Images:
    """Images that a program, its torch ``Dataset`` or a table holds, not resized yet.

    ``open`` gives the image of a position, or the bytes of its file.
    """

    open: Callable[[int], Image | bytes]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def where(self, position: int) -> str:
        """Which image it is, for a message."""
        return f"item {self.names[position]}"


Undecoded = Files | Images  # what becomes an array when the network's size is known


def part_of(images: Undecoded, kept: Sequence[int]) -> Undecoded:
    """Only some of the images."""
    names = tuple(images.names[position] for position in kept)
    if isinstance(images, Files):
        return Files(images.root, names)
    return Images(lambda position: images.open(kept[position]), names)


class Items(Protocol):
    """What images look like once they can be read: an array, a memory map, or a decoder with the same face.

    uint8 of shape (N, H, W, 3) for images, float32 of shape (N, d) for feature vectors.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, H, W, 3) or (N, d)."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """uint8 or float32."""
        ...

    def __len__(self) -> int: ...
    def __getitem__(self, index: Index, /) -> NDArray[Any]: ...


@dataclass(frozen=True)
class Domain:
    """Images of one domain. ``train`` and ``test`` are positions; in a transductive protocol they are equal.

    ``ignored`` counts the files beside the images that were left out, by extension.
    """

    name: str
    items: Undecoded | Items
    labels: Index | None
    train: Index
    test: Index
    ignored: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", as_text(self.name))  # it goes into records, tables and messages

    def __len__(self) -> int:
        return len(self.items)

    @property
    def kind(self) -> Literal["images", "features"]:
        """Images, decoded or not, or feature vectors."""
        return "images" if isinstance(self.items, Undecoded) or len(self.items.shape) == 4 else "features"

    @property
    def width(self) -> int | None:
        """Width of feature vectors; None for images."""
        return None if isinstance(self.items, Undecoded) or self.kind == "images" else self.items.shape[1]

    @property
    def names(self) -> tuple[str, ...]:
        """What each image is called: its file's name as text, or its position."""
        if isinstance(self.items, Undecoded):
            return tuple(map(as_text, self.items.names))
        return tuple(map(str, range(len(self))))

    def ignored_files(self) -> str:
        """The files that were left out, for a message: ``3 .heic, 1 .txt``; empty if there are none."""
        return ", ".join(f"{count} {extension}" for extension, count in sorted(self.ignored.items()))

    def without_labels(self) -> Domain:
        """The same domain as an adapting method sees it."""
        return replace(self, labels=None)

    def with_labels_shuffled(self, seed: int = 0) -> Domain:
        """The same domain with its labels permuted: adaptation must not notice."""
        if self.labels is None:
            return self
        return replace(self, labels=np.random.default_rng(seed).permutation(self.labels))


@dataclass(frozen=True)
class Benchmark:
    """An ordered set of domains with one class list and the protocol under which they are measured."""

    name: str
    domains: Mapping[str, Domain]
    classes: tuple[str, ...]
    protocol: Protocol_ = "transductive"
    headline: Headline = "top1"
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", as_text(self.name))  # as that of a domain

    def __iter__(self) -> Iterator[Domain]:
        return iter(self.domains.values())

    def __getitem__(self, name: str) -> Domain:
        if name not in self.domains:
            known = ", ".join(self.domains)
            raise CosdaError(f"{self.name} has no domain '{name}'.{nearest(name, self.domains)} It has: {known}.")
        return self.domains[name]

    def ordered(self, names: tuple[str, ...]) -> tuple[Domain, ...]:
        """The domains of a chain, source first; a name may stand only once."""
        if len(set(names)) != len(names):
            raise CosdaError(f"a domain is named twice in the chain {' → '.join(names)}; name each once.")
        return tuple(self[name] for name in names)


def everything(count: int) -> Index:
    """All positions of a domain: both splits of the transductive protocol."""
    return np.arange(count, dtype=np.int64)
