"""What a format of graphs must be able to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from torch import Tensor


class Runner(Protocol):
    """Computes one tensor of a graph; nothing ever changes it, so copies of a network share it."""

    def __call__(self, images: Tensor) -> Tensor:
        """The tensor, on the CPU."""
        ...


class Last(NamedTuple):
    """The last layer of a graph."""

    tensor: str  # what goes into it
    weight: Tensor  # (C, d)
    bias: Tensor | None  # (C,)


class Shape(NamedTuple):
    """What a graph says of its input."""

    batch: int | None  # None where it takes any number of images
    side: int | None


@dataclass(frozen=True)
class Format:
    """An entry of the registry; its key is the ending of the files."""

    title: str
    read: Callable[[Path], bytes]  # the content of a file, whole
    shape: Callable[[bytes], Shape]
    last_layer: Callable[[bytes], Last | None]  # None where the output does not simply come from one
    open: Callable[[bytes, str | None], Runner]  # for one of its tensors; for the output where none is named
