"""Arrays that a run has stored, as read back from a file that may come from elsewhere. No torch."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosda.files import as_text, open_regular
from cosda.units import amount

MOST = 2**28  # bytes of an array; a run stores a thousandth of it
LARGEST = 1e12  # magnitude of a number; single precision cannot add up the squares of much more


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The arrays of these names that an .npz file has; nothing is unpickled.

    Raises:
        ValueError: it cannot be read; the message says why.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            there = {
                name: member for name in names for member in archive.infolist() if member.filename == f"{name}.npy"
            }
            return {name: _array(archive, member) for name, member in there.items()}
    except Exception as error:  # decompressors and the parsers of headers raise nearly anything
        raise ValueError(as_text(" ".join(str(error).split()))[:200] or type(error).__name__) from None


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    if member.file_size > MOST:
        raise ValueError(f"{member.filename} unpacks to {amount(member.file_size)}, and {amount(MOST)} is the limit")
    with archive.open(member) as stream:
        found: NDArray[Any] = np.lib.format.read_array(io.BytesIO(stream.read(MOST)), allow_pickle=False)
    if found.dtype.kind not in "biuf":
        raise ValueError(f"{member.filename} holds {found.dtype} and no numbers")
    if found.size and not float(abs(found).max()) <= LARGEST:
        raise ValueError(f"{member.filename} holds numbers that are not finite, or beyond {LARGEST:g}")
    return found
