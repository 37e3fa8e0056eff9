"""Files and folders that hold whole domains, by kind: who recognises one, and who reads it.

To add a kind is to write its reader and one line in `CONTAINERS`. What is of none of these kinds is a folder of images
or of domains, an image, or an image list.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cosda import hub
from cosda.data import tables
from cosda.data.arrays import read_npz
from cosda.data.decode import EXTENSIONS
from cosda.data.domain import Domain
from cosda.data.fence import Fence
from cosda.data.lists import read_csv
from cosda.data.readers import Reading, layout

Read = Callable[[Path, bool, Fence | None], list[Reading]]


@dataclass(frozen=True)
class Container:
    """A kind of file or folder. ``read`` is told whether labels are wanted, and the fence, where there is one."""

    title: str
    matches: Callable[[Path, Fence | None], bool]
    read: Read


def _ends_in(ending: str) -> Callable[[Path, Fence | None], bool]:
    return lambda path, _: path.suffix.lower() == ending and not path.is_dir()


def _of_parquet(path: Path, fence: Fence | None) -> bool:
    """A folder that holds an image is one of images."""
    return (not path.is_dir() or layout(path, fence) == "nothing") and tables.is_parquet(path)


CONTAINERS = (
    Container("an .npz file", _ends_in(".npz"), lambda path, labels, _: read_npz(path, labels)),
    Container("a CSV file with a header", _ends_in(".csv"), read_csv),
    Container("a folder that save_to_disk of datasets wrote", lambda path, _: tables.is_saved(path), tables.read_saved),
    Container("a parquet file or a folder of them", _of_parquet, tables.read_parquet),
)


def find_container(path: Path, fence: Fence | None) -> Container | None:
    """The kind of a path; None for any other."""
    return next((container for container in CONTAINERS if container.matches(path, fence)), None)


# --- The hub ----------------------------------------------------------------------------------------------------------

_READ = [
    "*.parquet",
    "*.csv",
    "*.npz",
    "*.txt",
    *(f"*{end}" for extension in EXTENSIONS for end in (extension, extension.upper())),
]


@dataclass(frozen=True)
class Place:
    """Where data lie. ``domain`` is the one that is meant, where there may be several (``DATA#DOMAIN``)."""

    path: Path
    domain: str | None = None
    fence: Fence | None = None  # that of a copy from the hub, whose files are links; else data have their own
    name: str | None = None  # of a copy, whose folder is called by a number

    def renamed(self, domain: Domain) -> Domain:
        """The same domain, with the name of the data set where it has that of the copy's folder."""
        return replace(domain, name=self.name) if self.name and domain.name == self.path.name else domain


def locate(data: str | os.PathLike[str]) -> Place:
    """Where the data are that a path names, or ``hf:ORG/NAME[/FOLDER]``, of which there is then a copy.

    A copy on this machine is used as it is. Only where there is none, the network is.

    Raises:
        CosdaError: there is no such data set on the hub, or no network.
    """
    text, domain = os.fspath(data), None
    if "#" in text and not os.path.lexists(text):
        text, _, domain = text.rpartition("#")
    name = hub.name_of(text)
    if name is None:
        return Place(Path(text), domain)
    words = name.split("/")
    repository, folder = "/".join(words[:2]), "/".join(words[2:])
    snapshot = hub.stored(repository, "dataset", _READ) or hub.download(repository, "dataset", _READ)
    return Place(snapshot / folder, domain, Fence(hub.storage(snapshot)), None if folder else words[-1])
