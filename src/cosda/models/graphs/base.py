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


class Opened(Protocol):
    """A graph that was read."""

    def shape(self) -> Shape:
        """What it says of its input."""
        ...

    def last_layer(self) -> Last | None:
        """Its last layer; None where the output does not simply come from one."""
        ...

    def runner(self, tensor: str | None) -> Runner:
        """What computes one of its tensors; the output where none is named."""
        ...


@dataclass(frozen=True)
class Format:
    """An entry of the registry; its key is the ending of the files."""

    title: str
    read: Callable[[Path], bytes]  # the content of a file, whole
    open: Callable[[bytes], Opened]
