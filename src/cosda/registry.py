"""What there is of a kind, by the name that the command line uses: methods, carry rules, tables of the report, …

A registry is a dictionary, written by hand in the ``__init__.py`` of the folder that holds its entries. To add an entry
is to write one file and one line there. A program outside adds its own with ``METHODS["mine"] = Mine``. An installed
package adds one by an *entry point* in the registry's group, which is ``cosda.`` and the registry's name in small
letters::

    [project.entry-points."cosda.methods"]
    mine = "my_package:Mine"
"""

from __future__ import annotations

import logging
from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, ValuesView
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeVar, cast

from cosda.errors import CosdaError, nearest

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

T = TypeVar("T")

# Python writes these lines to stderr, unless the program has set up logging of its own.
log = logging.getLogger("cosda")


@dataclass(frozen=True)
class Plugin:
    """An entry point, and the installed package that declares it."""

    point: EntryPoint
    distribution: str
    version: str

    @property
    def package(self) -> str:
        """Name and version."""
        return f"{self.distribution} {self.version}".strip()


class Registry(MutableMapping[str, T]):
    """Entries by name. An entry has a ``title``: what it is, in a few words for help texts.

    Installed packages are looked for when the registry is first used. The code of an entry is imported when that entry
    is used, so help texts, which need names alone, stay quick.

    Args:
        kind: what an entry is, for messages.
        entries: those of this package.
        group: the group of entry points by which other packages add entries.
        of: the class that entries derive from (or, where they are no classes, whose instances they are).
    """

    def __init__(
        self, kind: str, entries: Mapping[str, T], group: str = "", of: type | tuple[type, ...] = object
    ) -> None:
        self.kind, self.group, self.of = kind, group, of
        self._entries = dict(entries)
        self._of_classes = any(isinstance(entry, type) for entry in entries.values())
        self._loaded: dict[str, T | CosdaError] = {}  # entries of plugins, or what is wrong with them

    def find(self, name: str) -> T:
        """The entry of a name.

        Raises:
            CosdaError: there is none, and the message names the nearest one and all others; or it is that of a package
                whose code cannot be used, and the message names the package.
        """
        if name not in self:
            raise CosdaError(f"there is no {self.kind} '{name}'.{nearest(name, self)} Known: {', '.join(self)}.")
        return self[name]

    def described(self) -> str:
        """All names with their titles, for a help text. Nothing is imported for it."""
        titles = {name: f"of {' and '.join(one.package for one in many)}" for name, many in self._plugins.items()}
        titles |= {name: getattr(entry, "title", "") for name, entry in self._entries.items()}
        return "; ".join(f"{name}: {titles[name]}" if titles[name] else name for name in self)

    def __getitem__(self, name: str) -> T:
        if name in self._entries:
            return self._entries[name]
        if name not in self._loaded:
            self._loaded[name] = self._load(name, *self._plugins[name])
        loaded = self._loaded[name]
        if isinstance(loaded, CosdaError):
            raise loaded
        return loaded

    def __setitem__(self, name: str, entry: T) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._plugins

    def __iter__(self) -> Iterator[str]:
        return iter({**self._entries, **self._plugins})

    def __len__(self) -> int:
        return len({**self._entries, **self._plugins})

    def items(self) -> ItemsView[str, T]:
        """All entries that can be used."""
        return self._usable().items()

    def values(self) -> ValuesView[T]:
        """All entries that can be used."""
        return self._usable().values()

    def _usable(self) -> dict[str, T]:
        """All entries. What is wrong with a plugin is told once, and everything else goes on."""
        found = {}
        for name in self:
            known = name in self._loaded
            try:
                found[name] = self[name]
            except CosdaError as error:
                if not known:
                    log.warning("cosda: %s Until then it is left out.", error)
        return found

    @cached_property
    def _plugins(self) -> dict[str, list[Plugin]]:
        """Who offers which further names. A name that is there already keeps its meaning, on every machine."""
        found: dict[str, list[Plugin]] = {}
        for plugin in plugins() if self.group else ():
            if plugin.point.group == self.group and plugin.point.name not in self._entries:
                found.setdefault(plugin.point.name, []).append(plugin)
            elif plugin.point.group == self.group:
                log.warning(
                    "cosda: the %s '%s' of the package %s is left out, because cosda's own has that name. "
                    "Its package should give it another one.",
                    *(self.kind, plugin.point.name, plugin.package),
                )
        return found

    def _load(self, name: str, plugin: Plugin, *others: Plugin) -> T | CosdaError:
        """The entry of a plugin, or what is wrong with it."""
        whose = f"the {self.kind} '{name}' of the package {plugin.package}"
        if others:
            packages = " and ".join(one.package for one in (plugin, *others))
            return CosdaError(f"the {self.kind} '{name}' is declared by {packages}. Uninstall all of them but one.")
        try:
            entry = plugin.point.load()
        except (Exception, SystemExit) as error:  # whatever code of somebody else does
            return CosdaError(
                f"{whose} cannot be loaded: {type(error).__name__}: {error}. Repair that package, or uninstall it."
            )
        if isinstance(entry, type) != self._of_classes or not self._derives(entry):
            classes = self.of if isinstance(self.of, tuple) else (self.of,)
            wanted = " or ".join(f"{one.__module__}.{one.__qualname__}" for one in classes)
            wanted = f"class that derives from {wanted}" if self._of_classes else wanted
            return CosdaError(
                f"{whose} cannot be used: {plugin.point.value} is no {wanted}. Repair that package, or uninstall it."
            )
        _used[plugin.distribution] = plugin.version
        return cast(T, entry)

    def _derives(self, entry: object) -> bool:
        return issubclass(entry, self.of) if isinstance(entry, type) else isinstance(entry, self.of)


_used: dict[str, str] = {}


def packages_used() -> dict[str, str]:
    """Name and version of each package of which an entry was loaded in this process."""
    return dict(_used)


@cache
def plugins() -> tuple[Plugin, ...]:
    """All entry points in groups of cosda; looked for once, since it takes some milliseconds."""
    from importlib.metadata import distributions  # lazily: importing cosda needs none of it

    found: dict[tuple[str, str, str], Plugin] = {}
    for distribution in distributions():
        try:
            points = [point for point in distribution.entry_points if point.group.startswith("cosda.")]
        except Exception:  # a damaged package, which perhaps has nothing to do with cosda
            log.warning("cosda: the entry points of the package %s cannot be read.", " ".join(_identity(distribution)))
            continue
        for point in points:  # a package that lies at two places counts once, as for Python's import
            name, version = _identity(distribution)
            found.setdefault((name, point.group, point.name), Plugin(point, name, version))
    return tuple(sorted(found.values(), key=lambda one: (one.point.name, one.distribution)))


def _identity(distribution: Distribution) -> tuple[str, str]:
    """Name and version of a package, as far as it says."""
    try:
        return str(distribution.metadata["Name"]), str(distribution.metadata["Version"])
    except Exception:
        return "without a name", ""
