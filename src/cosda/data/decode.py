"""From an image to pixels: uint8 (S, S, 3), whatever its format, colours and orientation.

This is the only place where images are decoded, so that the packed cache and the originals give equal bits.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from cosda.data.domain import Files, Index, Undecoded
from cosda.data.limits import MEGA, MEGAPIXELS, Room, image_bytes
from cosda.errors import CosdaError
from cosda.files import read_regular
from cosda.units import amount

T = TypeVar("T")
Pixels = NDArray[np.uint8]
Progress = Callable[[int, int], None]

EXTENSIONS = (".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # and none for which Pillow starts a program
_ORIENTATION = 0x0112  # the EXIF tag
_ROOM = Room()
_ONE_AT_A_TIME = threading.Lock()  # neither a Dataset nor an image that Pillow has opened need bear two threads
_BATCH = 64  # images per thread that may wait to be used: bounds the memory


class Unreadable(Exception):
    """A file that cannot be decoded; the message is the reason."""


def is_image(name: str) -> bool:
    """Whether a file is an image, by its name. macOS leaves hidden ``._photo.jpg`` beside images."""
    return not name.startswith(".") and name.lower().endswith(EXTENSIONS)


def read(path: Path, size: int) -> Pixels:
    """The image at ``path`` as uint8 (S, S, 3)."""
    return decode(read_bytes(path), size)


def read_bytes(path: Path) -> bytes:
    """The file as it is; one that cannot be read is `Unreadable`."""
    try:
        return read_regular(path, image_bytes())
    except FileNotFoundError:
        raise Unreadable("the file is missing") from None
    except OSError as error:
        raise Unreadable(f"the file cannot be read: {error.strerror}") from None
    except ValueError as error:  # a name that no file can have
        raise Unreadable(f"the file cannot be read: {error}") from None


def fetch(items: Undecoded, position: int) -> bytes | Image.Image:
    """What is decoded: the bytes of a file, or an image that a program holds. It may be `Unreadable`."""
    if isinstance(items, Files):
        return read_bytes(items.path(position))
    with _ONE_AT_A_TIME:
        try:
            image = items.open(position)
            if not isinstance(image, bytes):
                image.load()
        except (CosdaError, Unreadable):
            raise
        except Exception as error:  # the user's own dataset may raise anything
            raise Unreadable(f"{type(error).__name__}: {error}") from None
    if isinstance(image, bytes) and len(image) > image_bytes():
        raise Unreadable(
            f"the file cannot be read: it has {amount(len(image))}, and {amount(image_bytes())} is the limit"
        )
    return image


def digest(data: bytes | Image.Image) -> bytes:
    """16 bytes that name the content of an image."""
    if isinstance(data, bytes):
        return hashlib.blake2b(data, digest_size=16).digest()
    pixels = np.asarray(_to_rgb(data))
    return hashlib.blake2b(f"{pixels.shape}".encode() + pixels.tobytes(), digest_size=16).digest()


def decode(data: bytes | Image.Image, size: int) -> Pixels:
    """The image in ``data`` as uint8 (S, S, 3): in RGB, upright, resized without keeping its aspect."""
    if not data:
        raise Unreadable("the file is empty")
    try:
        if not isinstance(data, bytes):
            return _resized(_to_rgb(data), size)
        if (pixels := _decode_jpeg(data, size)) is not None:
            return pixels
        image = _open(data)
        with _room(image.width * image.height):
            return _resized(_to_rgb(image), size)
    except (Unreadable, CosdaError):
        raise
    except UnidentifiedImageError:
        raise Unreadable("not an image in a known format") from None
    except Exception as error:  # decoders raise nearly anything on damaged bytes
        raise Unreadable(f"damaged: {error}") from None


def _resized(image: Image.Image, size: int) -> Pixels:
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))


@contextmanager
def _room(pixels: int, share: int = 1) -> Iterator[None]:
    """Room in memory for an image, or for a share of it; an image above the limit is `Unreadable`."""
    if pixels > MEGAPIXELS.value * MEGA:
        raise Unreadable(f"too large: {MEGAPIXELS.exceeded(pixels / MEGA)}")
    with _ROOM.taken(pixels // share):
        yield


def _open(data: bytes) -> Image.Image:
    """The image in a file, whose pixels are not read yet."""
    if Image.MAX_IMAGE_PIXELS is not None and MEGAPIXELS.value > MEGAPIXELS.default:  # the user's wish
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, MEGAPIXELS.value * MEGA)
    try:
        return Image.open(io.BytesIO(data), formats=_FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):  # Pillow's limit is above ours
        raise Unreadable(f"too large: more than {MEGAPIXELS.value:,} megapixels ({MEGAPIXELS.variable})") from None


def _decode_jpeg(data: bytes, size: int) -> Pixels | None:
    """The usual photograph, by the faster decoder; None where Pillow must judge.

    A large photograph is decoded at 1/2, 1/4 or 1/8, never below twice the wanted size: resizing from there
    differs from resizing the whole by less than half a grey level on average.
    """
    if not data.startswith(b"\xff\xd8"):
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        if colours in ("CMYK", "YCCK"):
            return None
        with _room(height * width, share=4):  # a large one is hardly ever decoded whole
            pixels = simplejpeg.decode_jpeg(data, "RGB", min_height=2 * size, min_width=2 * size, min_factor=2)
            return _resized(_upright(Image.fromarray(pixels), data), size)
    except ValueError:  # damaged, or only unusual
        return None


def _upright(image: Image.Image, data: bytes) -> Image.Image:
    """A photograph turned as its file says."""
    if b"Exif\0\0" in data[:65536]:
        turned = _open(data).getexif().get(_ORIENTATION, 1)
        if turned != 1:
            image.getexif()[_ORIENTATION] = turned
            image = ImageOps.exif_transpose(image)
    return image


def _to_rgb(image: Image.Image) -> Image.Image:
    """Any image of Pillow, upright, in RGB, on white where it is transparent."""
    image.load()
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):  # convert() would clip at 255 what runs to 65535
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise Unreadable("32-bit pixels, whose range is unknown; save it with 8 or 16 bits")
    if image.has_transparency_data:
        clear = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
    return image.convert("RGB")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parallel(
    work: Callable[[int], T], count: int, workers: int | None = None, progress: Progress | None = None
) -> Iterator[T]:
    """``work(0), work(1), …`` in order, done by threads: reading, hashing and decoding release the GIL."""
    workers = workers or cores()
    done = 0
    with ThreadPoolExecutor(workers, thread_name_prefix="cosda-images") as pool:
        for start in range(0, count, _BATCH * workers):
            for result in pool.map(work, range(start, min(start + _BATCH * workers, count))):
                yield result
                done += 1
                if progress:
                    progress(done, count)


class Decoder:
    """Images with the face of an array: they are decoded when they are asked for."""

    def __init__(self, images: Undecoded, size: int, workers: int | None = None) -> None:
        self.images = images
        self.size = size
        self._workers = workers or cores()

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, S, S, 3)."""
        return (len(self.images), self.size, self.size, 3)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Always uint8."""
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Index, /) -> Pixels:
        positions = np.arange(len(self))[index]
        pixels = np.empty((positions.size, *self.shape[1:]), np.uint8)
        for row, image in enumerate(self._pool.map(self._read, positions.ravel().tolist())):
            pixels[row] = image
        return pixels.reshape(*positions.shape, *self.shape[1:])

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._workers, thread_name_prefix="cosda-images")

    def _read(self, position: int) -> Pixels:
        try:
            return decode(fetch(self.images, position), self.size)
        except Unreadable as error:
            raise CosdaError(f"{self.images.where(position)} could be read before and now cannot: {error}.") from None
