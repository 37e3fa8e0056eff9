"""Memory: keep what is freed for the next batch instead of giving it back to the system, and say how much was used.

glibc returns every large block as soon as it is freed, so each batch pays again for the same pages: on a CPU that can
be most of the time of a forward pass. `benchmarks/memory.py` measures it. Other C libraries are left alone.
"""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from pathlib import Path

import torch

# Numbers of glibc's mallopt(3).
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX, ARENA_MAX = -1, -2, -4, -8


@lru_cache(maxsize=1)
def keep_freed_memory() -> bool:
    """Tell the C library once; True where it understood."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return False
    wanted = {MMAP_MAX: 0, TRIM_THRESHOLD: 2**31 - 1, TOP_PAD: 2**26, ARENA_MAX: 1}
    return all([mallopt(number, value) for number, value in wanted.items()])


def peak_bytes(device: torch.device) -> int:
    """The most memory used so far: of the device, or of this process where the device is the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":  # has no such count
        return 0
    if sys.platform == "linux":  # where the other count begins with that of the process which started this one
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
