"""Numbers and reasons as a person says them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Seconds in the unit that fits."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def amount(size: float) -> str:
    """Bytes in the unit that fits."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def first_line(reason: str) -> str:
    """What fits into a line of a reason: of a traceback the last line, which names the error."""
    lines = reason.strip().splitlines() or [""]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]
