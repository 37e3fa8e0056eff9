"""What there is of a kind, by the name that the command line uses: methods, carry rules, tables of the report, …

A registry is a dictionary, written by hand in the ``__init__.py`` of the folder that holds its entries. To add an entry
is to write one file and one line there; a program outside adds its own with ``METHODS["mine"] = Mine``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from cosda.errors import CosdaError, nearest

T = TypeVar("T")


class Registry(dict[str, T]):
    """Entries by name. An entry has a ``title``: what it is, in a few words for help texts."""

    def __init__(self, kind: str, entries: Mapping[str, T]) -> None:
        super().__init__(entries)
        self.kind = kind

    def find(self, name: str) -> T:
        """The entry of a name.

        Raises:
            CosdaError: there is none; the message names the nearest one and all others.
        """
        if name not in self:
            raise CosdaError(f"there is no {self.kind} '{name}'.{nearest(name, self)} Known: {', '.join(self)}.")
        return self[name]

    def described(self) -> str:
        """All names with their titles, for a help text."""
        return "; ".join(
            f"{name}: {title}" if (title := getattr(entry, "title", "")) else name for name, entry in self.items()
        )
