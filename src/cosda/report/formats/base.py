"""What a format of a report is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cosda.report.tables.contents import Contents


@dataclass(frozen=True)
class Format:
    """An entry of the registry of formats."""

    title: str  # what it is for, in a few words
    render: Callable[[Contents], str]  # the whole file as text
