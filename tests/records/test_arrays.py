"""Arrays that a run has stored: only plain numbers, and only so many."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cosda.records.arrays import read_arrays


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file, file.open("a.npy", "w") as out:
        np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": (300, 2**17)})
        for _ in range(300):
            out.write(bytes(2**20))


def claim(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file, file.open("a.npy", "w") as out:
        np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": (2**60,)})


WRONG = {
    "empty": (lambda path: path.touch(), "not a zip file"),
    "pipe": (os.mkfifo, "a pipe or a device"),
    "bomb": (bomb, "unpacks to 300 MiB, and 256 MiB is the limit"),
    "claim": (claim, "."),
    "texts": (lambda path: np.savez(path, a=np.array(["x"])), "holds <U1 and no numbers"),
    "objects": (lambda path: np.savez(path, a=np.array([None])), "allow_pickle=False"),
    "not finite": (lambda path: np.savez(path, a=np.array([1, np.nan])), "not finite"),
    "huge": (lambda path: np.savez(path, a=np.array([1e300])), "beyond 1e"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(tmp_path: Path, case: str) -> None:
    make, message = WRONG[case]
    make(tmp_path / "x.npz")
    with pytest.raises(ValueError, match=message):
        read_arrays(tmp_path / "x.npz", ["a"])


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.arange(3), b=np.array([np.nan]))
    found = read_arrays(tmp_path / "x.npz", ["a", "c"])
    assert list(found) == ["a"]
    assert found["a"].tolist() == [0, 1, 2]
