"""The memory that a process is said to have used is its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = "import torch; from cosda.run.memory import peak_bytes; print(peak_bytes(torch.device('cpu')))"
PARENT = (
    "import subprocess, sys; held = bytearray(2**30); subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count in another way")
def test_peak_memory_is_not_that_of_the_parent() -> None:
    answer = subprocess.run([sys.executable, "-c", PARENT, CHILD], check=True, capture_output=True, text=True)
    assert 50 * 2**20 < int(answer.stdout) < 2**30
