"""How much of everything is read: all limits on data, and how each is raised.

A few kilobytes can claim to be gigabytes: an archive that unpacks a thousandfold, an image of a million by a million
pixels, a label that stands for 2^63 classes. What a file claims is compared with these limits before memory is taken
for it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cosda.errors import CosdaError


@dataclass(frozen=True)
class Limit:
    """A number that data may not exceed, and the environment variable by which it is changed."""

    variable: str
    default: int
    unit: str

    @property
    def value(self) -> int:
        """The limit, as it stands now."""
        text = os.environ.get(self.variable, "")
        if not text:
            return self.default
        if not text.isdecimal() or len(text) > 18 or not int(text):
            raise CosdaError(f"{self.variable} must be a whole number of {self.unit} from 1 up, not '{text}'.")
        return int(text)

    def exceeded(self, found: float) -> str:
        """The limit for a message: what was found, what is allowed, and what to do."""
        shown = f"{found:,.0f}" if found >= 100 else f"{found:.1f}".removesuffix(".0")
        return (
            f"{shown} {self.unit}, and the limit is {self.value:,}. "
            f"If that is right, set {self.variable} to a higher number"
        )


CLASSES = Limit("COSDA_MAX_CLASSES", 5_000, "classes")  # confusions are a matrix of their square
MEGAPIXELS = Limit("COSDA_MAX_MEGAPIXELS", 80, "megapixels")  # of an image, and of all that are decoded at a time
WIDTH = Limit("COSDA_MAX_WIDTH", 100_000, "features for each image")  # a network's first layer is a matrix of it
UNPACKED = Limit("COSDA_MAX_UNPACKED_MIB", 512, "MiB")  # of an .npz file's arrays; see `UNPACKED_RATIO`
LIST = Limit("COSDA_MAX_LIST_MIB", 64, "MiB")  # of an image list or CSV file

LARGEST = 1e12  # magnitude of a feature; single precision cannot add up the squares of much more
UNPACKED_RATIO = 10  # an .npz file may be larger than its limit if it takes up at least a tenth of that on the disk
BYTES_PER_PIXEL = 4  # an image file has at most so many for each pixel that the limit allows
HEADER_BYTES = 10_000  # of an array; numpy's own limit
FOLDERS_DEEP = 64
MEGA, MIB = 10**6, 2**20


def image_bytes() -> int:
    """The largest file of an image that is read."""
    return MEGAPIXELS.value * MEGA * BYTES_PER_PIXEL


def check_classes(count: int, where: str) -> None:
    """An error for more classes than a matrix of them has room for."""
    if count > CLASSES.value:
        raise CosdaError(
            f"{where}: its labels make {CLASSES.exceeded(count)}. Labels are names, or numbers from 0 up without gaps."
        )


class Room:
    """Pixels that may be in memory at a time, however many threads decode images: who finds no room waits for it."""

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._taken = 0

    @contextmanager
    def taken(self, pixels: int) -> Iterator[None]:
        """Have room for so many; an image larger than all the room is decoded alone."""
        with self._free:
            self._free.wait_for(lambda: not self._taken or self._taken + pixels <= MEGAPIXELS.value * MEGA)
            self._taken += pixels
        try:
            yield
        finally:
            with self._free:
                self._taken -= pixels
                self._free.notify_all()
