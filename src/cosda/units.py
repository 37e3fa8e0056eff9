"""Durations and sizes in the unit that a person would choose. No torch."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Seconds in the unit that fits.

    Example:
        >>> duration(754)
        '13 min'
    """
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def amount(size: float) -> str:
    """Bytes in the unit that fits.

    Example:
        >>> amount(3_000_000)
        '3 MiB'
    """
    for unit in ("B", "KiB", "MiB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
