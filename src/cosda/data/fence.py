"""The data folder, out of which links and lists lead only if the user says so.

Data come from elsewhere. A link in an archive or a line of a list may name any file of the machine that unpacks it, so
where they lead is looked at before anything is read there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cosda.data.domain import Files
from cosda.errors import CosdaError
from cosda.files import as_text


@dataclass(frozen=True)
class Fence:
    """A folder that is not left, unless links may be followed."""

    folder: Path
    follow_links: bool = False

    @cached_property
    def _root(self) -> str:
        return os.path.realpath(self.folder)

    def check(self, path: str | Path) -> str:
        """Where a path really leads; an error if that is not in the folder."""
        real = os.path.realpath(path)
        if not (self.follow_links or real == self._root or real.startswith(self._root.rstrip(os.sep) + os.sep)):
            raise CosdaError(
                f"{as_text(str(path))} leads out of the data folder {as_text(self._root)}, to {as_text(real)}. If what "
                "lies there is meant, say --follow-links (in Python follow_links=True)."
            )
        return real

    def check_files(self, files: Files) -> None:
        """An error if one of the files, which somebody else has named, lies outside."""
        if self.follow_links:
            return
        folders: set[str] = set()
        for position in range(len(files)):
            path = files.path(position)
            try:
                if (folder := os.path.dirname(path)) not in folders:
                    self.check(folder)
                    folders.add(folder)
                if os.path.islink(path):
                    self.check(path)
            except ValueError as error:  # no path at all
                raise CosdaError(f"{files.where(position)} is no path: {error}.") from None


ANYWHERE = Fence(Path(), follow_links=True)
