"""Benchmarks: the four of the paper as people have them on disk, and any folder of domain folders.

The layouts are read without knowing the data set; a table then recognises it from the names of its domains:

    <domain>/<class>/…                         the original archives of Office-Home and VisDA, and own folders
    <domain>/images/<class>/…                  Office-31
    <domain>/{train,test}/<class>/…            own folders with a split: inductive
    <domain>/image_list.txt                    VisDA
    image_list/<domain>.txt                    TLLib
    [splits/]<domain>_train.txt, …_test.txt    DomainNet: inductive
    <file>.npz                                 arrays of several domains
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cosda.data import readers
from cosda.data.arrays import read_arrays
from cosda.data.domain import Benchmark, Domain
from cosda.data.readers import Reading, listed, plain
from cosda.data.registry import VISDA_CLASSES, Known, by_name, recognise, what_belongs
from cosda.errors import CosdaError, nearest


@dataclass(frozen=True)
class Found:
    """What lies at a path, before its domains are put under one class list (`doctor` looks at this)."""

    name: str
    readings: tuple[Reading, ...]
    known: Known | None = None


def load(data: str | Path, name: str | None = None) -> Benchmark:
    """Load a benchmark from a folder or an ``.npz`` file, or the embedded one by its name, ``digits``.

    ``name`` is the benchmark that the caller expects to find there: office31, officehome, visda or domainnet.
    """
    if str(data) == "digits":
        from cosda.data import digits  # lazily: it draws images

        return digits.load()
    return assemble(find(Path(data), name))


def find(data: Path, name: str | None = None) -> Found:
    """Read the domains at ``data`` and recognise the data set."""
    known = by_name(name) if name else None
    if not data.exists():
        siblings = readers.folders_in(data.parent) if data.parent.is_dir() else []
        raise CosdaError(f"{data} does not exist.{nearest(data.name, siblings)} {what_belongs(known)}")
    with readers.explained(data):
        found = _find(data, known)
    if known and found.known is not known:
        present = listed([reading.domain.name for reading in found.readings])
        raise CosdaError(f"{data} is not {known.title}. {what_belongs(known)} Found the domains {present}.")
    return found


def _find(data: Path, known: Known | None) -> Found:
    if data.suffix == ".npz":
        readings = read_arrays(data)
        return _found(data.stem, readings, recognise(reading.domain.name for reading in readings))
    if data.is_dir():
        return _find_lists(data) or _find_folders(data, known)
    raise CosdaError(f"{data} is a single file. {what_belongs(known)}")


def assemble(found: Found) -> Benchmark:
    """Put all domains under one class list and decide the protocol, or say why that is impossible."""
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


def load_domain(data: str | Path, classes: tuple[str, ...] | None = None, labelled: bool | None = None) -> Domain:
    """Load one domain: a folder, an image, an image list (``.txt``) or arrays (``.npz``).

    With ``classes``, those of a model, labels are positions in that list; a folder with none of them is
    unlabelled. ``labelled=True`` demands labels, ``False`` ignores them, ``None`` takes what there is.
    """
    path = Path(data)
    if not path.exists():
        raise CosdaError(f"{path} does not exist. Give a folder of images, an image list or an .npz file.")
    with readers.explained(path):
        reading = _read_one(path, classes, labelled)
    if labelled and reading.domain.labels is None:
        expected = f" Its class folders must be among: {listed(classes)}." if classes else ""
        raise CosdaError(f"{path} has no labels; they are needed here.{expected}")
    return reading.domain


def _read_one(path: Path, classes: tuple[str, ...] | None, labelled: bool | None) -> Reading:
    if path.is_dir():
        if labelled is False or readers.layout(path) not in ("split", "classes"):
            return readers.read_images(path)
        reading = readers.read_folder(path)
        if classes and not any(_in(classes, name) for name in reading.classes):
            return readers.read_images(path)
    elif path.suffix == ".npz":
        found = read_arrays(path)
        if len(found) > 1:
            names = listed([reading.domain.name for reading in found])
            raise CosdaError(f"{path} holds several domains ({names}); one is needed here.")
        reading = found[0]
    elif path.suffix == ".txt":
        reading = readers.read_list(path)
        if classes and not all(_in(classes, name) for name in reading.classes):
            reading = readers.read_list(path, by_folder=False)
    else:
        return readers.read_images(path)
    if labelled is False or not reading.classes:
        return replace(reading, domain=reading.domain.without_labels(), classes=())
    return _for_model(path, reading, classes) if classes else reading


def _for_model(path: Path, reading: Reading, classes: tuple[str, ...]) -> Reading:
    """Labels as positions in a model's class list: by name, or by number where there are no names."""
    names = tuple(_in(classes, name) or name for name in reading.classes)
    unknown = [name for name in names if name not in classes]
    if unknown and reading.numbered and len(names) <= len(classes):
        return replace(reading, classes=classes)
    if unknown:
        raise CosdaError(
            f"{path} has classes that the model does not know: {listed(unknown)}."
            f"{nearest(unknown[0], classes)} The model's classes are: {listed(classes, 20)}."
        )
    return replace(reading, classes=names).with_classes(classes)


def _in(classes: tuple[str, ...], name: str) -> str | None:
    """The model's name of a class folder: itself, or the paper's short form of VisDA's."""
    return next((known for known in (name, VISDA_CLASSES.get(name)) if known in classes), None)


def _find_lists(data: Path) -> Found | None:
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
    readings = [_read_lists(data, name, lists[name], bool(known and known.inductive)) for name in wanted]
    return _found(readers.name_of(data), readings, known)


def _read_lists(data: Path, name: str, parts: Mapping[str, Path], inductive: bool) -> Reading:
    if "list" in parts and not (inductive and "train" in parts):
        return readers.read_list(parts["list"], name=name)
    for part in ("train", "test"):
        if part not in parts:
            raise CosdaError(f"{data}: the list {name}_{part}.txt is missing beside {next(iter(parts.values()))}.")
    return readers.read_list(parts["train"], name=name, test=parts["test"])


def _find_folders(data: Path, expected: Known | None) -> Found:
    """Domains given by folders: at least one has class folders; one without is unlabelled."""
    names = readers.folders_in(data)
    known = recognise(names)
    if known and known.classes and not set(readers.folders_in(data / "train")) <= set(known.classes):
        known = None  # folders called train and validation are not VisDA's alone
    if not known and set(names) <= {"train", "validation", "test"} and readers.layout(data) == "split":
        return Found(readers.name_of(data), (readers.read_folder(data),))  # one domain
    layouts = {name: readers.layout(data / name) for name in names}
    if names == ["images"] or not any(kind in ("split", "classes") for kind in layouts.values()):
        raise CosdaError(f"{data} is no benchmark. {what_belongs(expected)} {_instead(data, names)}")
    wanted = [name for name in names if not known or plain(name) in known.domains]
    # an own folder without images is no domain (runs/); a known domain without images is an error
    readings = [_read_folder(data / name) for name in wanted if known or layouts[name] != "nothing"]
    return _found(readers.name_of(data), readings, known)


def _read_folder(folder: Path) -> Reading:
    if (folder / "image_list.txt").is_file():
        return readers.read_list(folder / "image_list.txt", root=folder, name=folder.name)
    loose = readers.layout(folder) == "images"
    return readers.read_images(folder) if loose else readers.read_folder(folder)


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
