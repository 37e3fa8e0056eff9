"""Benchmarks: those of `registry` as people have them on disk, and any folder of domain folders.

The layouts are read without knowing the data set; a table then recognises it from the names of its domains:

    <domain>/<class>/…                         the original archives of Office-Home and VisDA, and own folders
    <domain>/images/<class>/…                  Office-31
    <domain>/{train,test}/<class>/…            own folders with a split: inductive
    <domain>/image_list.txt                    VisDA
    image_list/<domain>.txt                    TLLib
    [splits/]<domain>_train.txt, …_test.txt    DomainNet: inductive
    <file>.npz                                 arrays of several domains
    <file>.csv, <file>.parquet, …              tables with a column domain, or with splits (`containers`)
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cosda.data import readers
from cosda.data.containers import find_container, locate
from cosda.data.domain import Benchmark
from cosda.data.fence import ANYWHERE, Fence
from cosda.data.lists import read_list
from cosda.data.readers import UNNAMED, Reading, listed
from cosda.data.registry import BENCHMARKS, Known, by_name, plain, recognise, what_belongs
from cosda.data.tables import is_dataset, read_dataset
from cosda.data.torch_dataset import Indexable
from cosda.errors import CosdaError, nearest

BenchmarkLike = str | os.PathLike[str] | Mapping[str, object] | Indexable | Benchmark


@dataclass(frozen=True)
class Found:
    """What lies at a path, before its domains are put under one class list (`doctor` looks at this)."""

    name: str
    readings: tuple[Reading, ...]
    known: Known | None = None


def load(
    data: BenchmarkLike,
    name: str | None = None,
    *,
    follow_links: bool = False,
) -> Benchmark:
    """Load a benchmark.

    Args:
        data: A folder of domain folders, a file of several domains (``.npz``, ``.csv``, ``.parquet``), a folder of
            ``save_to_disk`` or the name ``hf:ORG/NAME`` of a data set, a ``Dataset`` or ``DatasetDict`` of
            ``datasets``; the name of an embedded benchmark; or a `Benchmark`, which is returned as it is.
        name: The benchmark that the caller expects to find there, a name of `BENCHMARKS`.
        follow_links: Whether links and lists in a folder may lead out of it.

    Raises:
        CosdaError: there is no benchmark, or another one; or something leads out of its folder.

    Example:
        >>> cosda.load_benchmark("photos").domains
        >>> cosda.load_benchmark(datasets.load_dataset("org/name"))["sketch"]
    """
    if isinstance(data, Benchmark):
        return data
    if is_dataset(data):
        found = _of_tables(UNNAMED, read_dataset(data, UNNAMED))
        return assemble(_expected(found, by_name(name) if name else None, "the data set"))
    if not isinstance(data, str | os.PathLike):
        raise CosdaError(f"a {type(data).__name__} is no benchmark. Expected {what_belongs()}.")
    embedded = BENCHMARKS.get(str(data))
    if embedded and embedded.make:
        return embedded.make()
    return assemble(find(data, name, follow_links))


def find(data: str | os.PathLike[str], name: str | None = None, follow_links: bool = False) -> Found:
    """Read the domains at ``data`` and recognise the benchmark."""
    place, known = locate(data), by_name(name) if name else None
    path = place.path
    if not path.exists():
        siblings = readers.folders_in(path.parent) if path.parent.is_dir() else []
        raise CosdaError(f"{path} does not exist.{nearest(path.name, siblings)} Expected {what_belongs(known)}.")
    fence = ANYWHERE if follow_links else place.fence
    with readers.explained(path):
        found = _find(path, known, fence)
    readings = tuple(replace(one, domain=place.renamed(one.domain)) for one in found.readings)
    if place.domain is not None:
        readings = (readers.called(place.domain, readings, str(path)),)
    named = replace(found, name=found.name if place.name is None or found.known else place.name, readings=readings)
    return _expected(named, known, str(path))


def _expected(found: Found, known: Known | None, where: str) -> Found:
    """An error if it is another benchmark than the caller expects."""
    if known and found.known is not known:
        present = listed([reading.domain.name for reading in found.readings])
        raise CosdaError(f"{where} is not {known.title}. Expected {what_belongs(known)}. Found the domains {present}.")
    return found


def _find(data: Path, known: Known | None, fence: Fence | None) -> Found:
    if container := find_container(data, fence):
        return _of_tables(readers.name_of(data), container.read(data, True, fence))
    if data.is_dir():
        fence = fence or Fence(data)
        return _find_lists(data, fence) or _find_folders(data, known, fence)
    raise CosdaError(f"{data} is a single file. Expected {what_belongs(known)}.")


def assemble(found: Found) -> Benchmark:
    """Put all domains under one class list and decide the protocol, or say why that is impossible."""
    _check_together(found)
    classes = one_class_list(found.readings)
    split = [reading.domain.name for reading in found.readings if reading.is_split]
    whole = [reading.domain.name for reading in found.readings if not reading.is_split]
    if split and whole:
        raise CosdaError(
            f"{found.name}: {listed(split)} have a train and a test part, {listed(whole)} have not. "
            f"Split all domains or none."
        )
    if found.known and found.known.inductive and whole:
        raise CosdaError(
            f"{found.known.title} is measured on its official split, and the lists of it were not found. Put "
            f"{whole[0]}_train.txt, {whole[0]}_test.txt and so on beside the domain folders or into splits/."
        )
    notes = []
    if found.known and len(classes) != found.known.class_count:
        notes.append(f"{len(classes)} of the {found.known.class_count} classes of {found.known.title}")
    for reading in found.readings:
        if not reading.classes:
            notes.append(f"{reading.domain.name} has no labels")
        elif absent := [name for name in classes if name not in reading.classes]:
            notes.append(f"{reading.domain.name} has no class {listed(absent)}")
    return Benchmark(
        name=found.name,
        domains={r.domain.name: r.with_classes(classes).domain for r in found.readings},
        classes=classes,
        protocol="inductive" if split else "transductive",
        headline=found.known.headline if found.known else "top1",
        notes=tuple(notes),
    )


def _check_together(found: Found) -> None:
    """An error for domains of one name, of which one would hide the other, and for inputs that no network can share."""
    names = Counter(reading.domain.name for reading in found.readings)
    if twice := [name for name, count in names.items() if count > 1]:
        raise CosdaError(f"{found.name} has more than one domain {listed(twice)}. Give each a name of its own.")
    inputs: dict[str, list[str]] = defaultdict(list)
    for reading in found.readings:
        domain = reading.domain
        inputs["images" if domain.width is None else f"{domain.width} features"].append(domain.name)
    if len(inputs) > 1:
        shown = "; ".join(f"{what} in {listed(names)}" for what, names in inputs.items())
        raise CosdaError(f"the domains of {found.name} have different inputs: {shown}. One network takes one of them.")


def one_class_list(readings: tuple[Reading, ...]) -> tuple[str, ...]:
    """The class list of all domains: that of the domain which has every class.

    A domain may lack classes of another (a new site need not have seen them all), but where each of two has
    classes that the other lacks, names are misspelt or the data do not belong together.
    """
    labelled = [reading for reading in readings if reading.classes]
    if not labelled:
        names = listed([reading.domain.name for reading in readings])
        raise CosdaError(f"none of the domains {names} has labels; a benchmark needs at least one that has.")
    widest = max(labelled, key=lambda reading: len(reading.classes))
    for reading in labelled:
        if extra := [name for name in reading.classes if name not in widest.classes]:
            absent = [name for name in widest.classes if name not in reading.classes]
            raise CosdaError(
                f"mismatched class lists: {reading.domain.name} has {listed(extra)}, which "
                f"{widest.domain.name} has not; {widest.domain.name} has {listed(absent)}, which "
                f"{reading.domain.name} has not."
                f"{nearest(extra[0], absent)} Give the class folders of all domains the same names."
            )
    return widest.classes


def _find_lists(data: Path, fence: Fence) -> Found | None:
    """Domains given by image lists, in a folder of lists or beside folders of the same names."""
    lists: dict[str, dict[str, Path]] = defaultdict(dict)
    folders = {plain(name) for name in readers.folders_in(data)}
    for place in (data / "image_list", data / "splits", data):
        for path in sorted(place.glob("*.txt")):
            stem, _, part = path.stem.rpartition("_")
            domain, part = (stem, part) if stem and part in ("train", "test", "list") else (path.stem, "list")
            if place != data or plain(domain) in folders:
                lists[domain].setdefault(part, path)
    if not lists:
        return None
    known = recognise(lists)
    wanted = [name for name in lists if not known or plain(name) in known.domains]
    readings = [_read_lists(data, name, lists[name], bool(known and known.inductive), fence) for name in wanted]
    return _found(readers.name_of(data), readings, known)


def _read_lists(data: Path, name: str, parts: Mapping[str, Path], inductive: bool, fence: Fence) -> Reading:
    for path in parts.values():
        fence.check(path)
    if "list" in parts and not (inductive and "train" in parts):
        return read_list(parts["list"], name=name, fence=fence)
    for part in ("train", "test"):
        if part not in parts:
            raise CosdaError(f"{data}: the list {name}_{part}.txt is missing beside {next(iter(parts.values()))}.")
    return read_list(parts["train"], name=name, test=parts["test"], fence=fence)


def _find_folders(data: Path, expected: Known | None, fence: Fence) -> Found:
    """Domains given by folders: at least one has class folders; one without is unlabelled."""
    readers.check_links(data)
    names = readers.folders_in(data)
    known = recognise(names)
    if known and known.classes:
        first = next(name for name in names if plain(name) in known.domains)
        if not set(readers.folders_in(data / first)) <= set(known.classes):
            known = None  # folders called train and validation are not VisDA's alone
    if not known and set(names) <= {"train", "validation", "test"} and readers.layout(data, fence) == "split":
        return Found(readers.name_of(data), (readers.read_folder(data, fence=fence),))  # one domain
    layouts = {name: readers.layout(data / name, fence) for name in names}
    if names == ["images"] or not any(kind in ("split", "classes") for kind in layouts.values()):
        raise CosdaError(f"{data} is no benchmark. Expected {what_belongs(expected)}. {_instead(data, names)}")
    wanted = [name for name in names if not known or plain(name) in known.domains]
    # an own folder without images is no domain (runs/); a known domain without images is an error
    readings = [_read_folder(data / name, fence) for name in wanted if known or layouts[name] != "nothing"]
    return _found(readers.name_of(data), readings, known)


def _read_folder(folder: Path, fence: Fence) -> Reading:
    if (folder / "image_list.txt").is_file():
        return read_list(folder / "image_list.txt", root=folder, name=folder.name, fence=fence)
    loose = readers.layout(folder, fence) == "images"
    return (readers.read_images if loose else readers.read_folder)(folder, fence=fence)


def _of_tables(name: str, readings: list[Reading]) -> Found:
    """Domains whose names stand in a file."""
    return _found(name, readings, recognise(reading.domain.name for reading in readings))


def _found(name: str, readings: list[Reading], known: Known | None) -> Found:
    """Give the domains and classes of a known data set the paper's names, and its order to the domains."""
    if not known:
        return Found(name, tuple(readings))
    order = list(known.domains.values())
    renamed = [
        replace(
            reading,
            domain=replace(reading.domain, name=known.domains[plain(reading.domain.name)]),
            classes=tuple(known.classes.get(label, label) for label in reading.classes),
        )
        for reading in readings
        if plain(reading.domain.name) in known.domains
    ]
    return Found(known.name, tuple(sorted(renamed, key=lambda r: order.index(r.domain.name))), known)


def _instead(data: Path, names: list[str]) -> str:
    """What was found instead, and what was perhaps meant."""
    inner = [name for name in names if recognise(readers.folders_in(data / name))]
    if inner:
        return f"Did you mean '{data / inner[0]}'?"
    if readers.layout(data) == "classes":
        return f"It looks like one domain with {len(names)} classes ({listed(names)}); give the folder above."
    return readers.describe(data)[0].upper() + readers.describe(data)[1:] + "."
