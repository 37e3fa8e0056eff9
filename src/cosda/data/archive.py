"""Plain arrays out of an ``.npz`` file: its table of contents is looked at before memory is taken for any of them.

An ``.npz`` file is a zip archive with one ``.npy`` file for each array. Archives come from elsewhere: they may be
damaged, encrypted, packed by a method that Python does not know, hold a name twice, or unpack to a thousand times their
size.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from cosda.data.limits import HEADER_BYTES, MIB, UNPACKED, UNPACKED_RATIO
from cosda.data.readers import listed
from cosda.errors import CosdaError
from cosda.files import as_text, open_regular

Array = NDArray[Any]
_ENCRYPTED = 1  # the bit of a member's flags
_CHUNK = 2**24


class _Wrong(Exception):
    """What is wrong with an archive; the message says it."""


def read_archive(path: Path, wanted: Callable[[str], bool]) -> dict[str, Array | None]:
    """All arrays of an ``.npz`` file by name; those that are not wanted are not read, and None.

    Raises:
        CosdaError: it is damaged or no archive of plain arrays, holds a name twice, or unpacks to too much.
    """
    try:
        with open_regular(path) as file:
            return _read(file, wanted)
    except OSError as error:
        raise CosdaError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (_Wrong, Exception) as error:  # decompressors and the parsers of headers raise nearly anything
        reason = str(error) if isinstance(error, _Wrong) else _reason(error)
        raise CosdaError(
            f"{path} cannot be read as an .npz file of plain arrays: {reason}. Save it with numpy.savez."
        ) from None


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "there is too little memory"
    if isinstance(error, NotImplementedError):
        return "it is packed by a method that Python does not know"
    return as_text(" ".join(str(error).split()))[:300] or type(error).__name__


def _read(file: BinaryIO, wanted: Callable[[str], bool]) -> dict[str, Array | None]:
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise _Wrong("it is empty")
    if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
        raise _Wrong("it is a single array (.npy), which has no name such as images or features")
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        members = {_name(member): member for member in archive.infolist()}
        if len(members) < len(archive.infolist()):
            names = [_name(member) for member in archive.infolist()]
            twice = sorted({name for name in names if names.count(name) > 1})
            raise _Wrong(f"it holds more than one array called {listed(twice)}")
        if locked := [name for name, member in members.items() if member.flag_bits & _ENCRYPTED]:
            raise _Wrong(f"{listed(locked)} is encrypted")
        chosen = {name: member for name, member in members.items() if wanted(name)}
        unpacked = sum(member.file_size for member in chosen.values())
        if unpacked > max(UNPACKED.value * MIB, UNPACKED_RATIO * size):
            raise _Wrong(f"its {size / MIB:,.1f} MiB unpack to {UNPACKED.exceeded(unpacked / MIB)}")
        return {name: _array(archive, member, name) if name in chosen else None for name, member in members.items()}


def _name(member: zipfile.ZipInfo) -> str:
    return as_text(member.filename.removesuffix(".npy"))


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> Array:
    """One array. Its header must claim as many bytes as the archive says that there are."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others unpack without bounds
        raise _Wrong(f"{name} is packed by a method that numpy does not use")
    with archive.open(member) as stream:
        shape, fortran, kind, header = _header(io.BytesIO(stream.read(HEADER_BYTES)), name)
    size = math.prod(shape) * kind.itemsize
    if kind.hasobject or not kind.itemsize:
        raise _Wrong(f"{name} holds {kind} and no numbers or texts")
    if header + size != member.file_size:
        raise _Wrong(f"{name} claims {shape} values of {kind}, and has {member.file_size - header} bytes")
    content = np.empty(size, np.uint8)
    with archive.open(member) as stream:
        stream.read(header)
        for start in range(0, size, _CHUNK):  # more than this is never unpacked at a time, whatever the archive says
            part = content[start : start + _CHUNK].data
            if stream.readinto(part) < len(part):  # type: ignore[attr-defined]
                raise _Wrong(f"{name} is cut off")
    values = content.view(kind) if size else np.empty(0, kind)
    return values.reshape(shape, order="F" if fortran else "C")


def _header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order and kind of an array, and the length of the header that says so."""
    version = npy.read_magic(stream)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise _Wrong(f"{name} is of version {version} of numpy's format; versions 1 and 2 are read")
    try:
        shape, fortran, kind = readers[version](stream, max_header_size=HEADER_BYTES)
    except Exception as error:  # it is text, for which numpy calls Python's parser
        raise _Wrong(f"the header of {name} cannot be read ({type(error).__name__})") from None
    return shape, fortran, kind, stream.tell()
