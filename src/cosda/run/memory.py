"""Memory: keep what is freed for the next batch instead of giving it back to the system, and say how much was used.

glibc returns every large block as soon as it is freed, so each batch pays again for the same pages: on a CPU that can
be most of the time of a forward pass. `benchmarks/memory.py` measures it. Other C libraries are left alone.
"""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# Numbers of glibc's mallopt(3).
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX, ARENA_MAX = -1, -2, -4, -8


@lru_cache(maxsize=1)
def keep_freed_memory() -> bool:
    """Tell the C library once, for the whole process; True where it understood.

    A library does not do this to the program around it: the command line and the workers of a benchmark do.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return False
    wanted = {MMAP_MAX: 0, TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 2**26, ARENA_MAX: 1}
    return all([mallopt(number, value) for number, value in wanted.items()])


def peak_bytes(device: torch.device) -> int:
    """The most memory used so far: of the device, or of this process where the device is the CPU."""
    if device.type == "cuda":
        from torch import cuda

        return cuda.max_memory_allocated(device)
    if sys.platform == "win32":  # has no such count
        return 0
    if sys.platform == "linux":
        return linux_bytes("VmHWM")
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def linux_bytes(kind: str) -> int:
    """Bytes of this process, as Linux counts them.

    ``VmHWM`` is the most that it ever held. The more usual ``ru_maxrss`` will not do: a process inherits it from the
    one that started it. ``RssAnon`` is what it holds now of its own; mapped files, which the system may drop at any
    time, are ``RssFile``.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name == kind:
            return int(value.split()[0]) * 1024
    raise ValueError(f"/proc/self/status has no {kind}")
