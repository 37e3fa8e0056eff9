"""`cosda doctor`: look at data before they are used, and say what is there and what is wrong.

Problems are what spoils a run (unreadable or missing files, empty classes or splits, images in both splits,
class lists that do not match, data that cannot be loaded at all). Warnings are what one should know
(duplicates, classes that a domain lacks, files that are ignored because they are no images).
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cosda.data import benchmarks, readers
from cosda.data.benchmarks import Found
from cosda.data.containers import locate
from cosda.data.decode import Progress, Unreadable, decode, digest, fetch, in_parallel
from cosda.data.domain import Domain, Undecoded
from cosda.data.fence import ANYWHERE
from cosda.data.lists import read_list
from cosda.data.readers import Reading, listed
from cosda.data.registry import BENCHMARKS
from cosda.errors import CosdaError
from cosda.files import as_text

_SIZE = 32  # images are decoded to see whether they can be; small is quick
_SHOWN = 10  # lines of each kind in the text; as_json has all


@dataclass(frozen=True)
class DomainFindings:
    """Counts of one domain. ``missing`` are classes of other domains, ``empty`` its own without an image.

    ``ignored`` counts the files that are no images, by extension.
    """

    name: str
    images: int
    labelled: int
    train: int
    test: int
    classes: int
    missing: list[str]
    empty: list[str]
    ignored: dict[str, int]


@dataclass(frozen=True)
class Findings:
    """What `examine` found. ``unreadable`` are (file, reason); ``duplicates`` groups of equal images."""

    path: str
    benchmark: str = ""
    protocol: str = ""
    classes: list[str] = field(default_factory=list)
    domains: list[DomainFindings] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    duplicates: list[list[str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there are no problems; the command's exit code is 0 or 2."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {"ok": self.ok, **asdict(self)}

    def as_text(self) -> str:
        """For reading: a table of the domains, then problems, warnings and notes."""
        lines = [self.path]
        if self.domains:
            count = len(self.classes) if self.classes else "no common"
            lines += [f"  {self.benchmark}, {self.protocol}, {count} classes", "", *self._table()]
        for title, remarks in (
            ("Problems", self.problems),
            ("Warnings", self.warnings),
            ("Notes", self.notes),
            ("Unreadable", [f"{name}: {reason}" for name, reason in self.unreadable]),
            ("Duplicates", [" = ".join(group) for group in self.duplicates]),
        ):
            if remarks:
                more = [f"  … and {len(remarks) - _SHOWN} more"] if len(remarks) > _SHOWN else []
                lines += ["", title, *(f"  {remark}" for remark in remarks[:_SHOWN]), *more]
        lines += ["", "No problems." if self.ok else f"Problems: {len(self.problems)}."]
        return "\n".join(lines)

    def _table(self) -> list[str]:
        columns = ("images", "labelled", "train", "test", "classes")
        width = max(len("domain"), *(len(domain.name) for domain in self.domains))
        head = f"  {'domain':{width}}" + "".join(f"{column:>10}" for column in columns)
        return [head] + [
            f"  {domain.name:{width}}" + "".join(f"{getattr(domain, column):>10}" for column in columns)
            for domain in self.domains
        ]


def examine(
    path: str | os.PathLike[str],
    workers: int | None = None,
    progress: Progress | None = None,
    follow_links: bool = False,
) -> Findings:
    """Look at a benchmark, or at one domain, and decode every image once. It raises nothing."""
    embedded = BENCHMARKS.get(str(path))
    if embedded and embedded.make:
        benchmark = embedded.make()
        inductive = benchmark.protocol == "inductive"
        readings = tuple(Reading(domain, benchmark.classes, inductive) for domain in benchmark)
        return _examine(Findings(str(path)), Found(benchmark.name, readings), workers, progress)
    findings = Findings(as_text(str(path)))
    try:
        with readers.explained(Path(path)):
            found = _find(path, follow_links)
    except CosdaError as error:
        findings.problems.append(str(error))
        return findings
    return _examine(findings, found, workers, progress)


def _find(path: str | os.PathLike[str], follow_links: bool) -> Found:
    """A benchmark, or else one domain: class folders, loose images, or a list."""
    try:
        return benchmarks.find(path, follow_links=follow_links)
    except CosdaError:
        if (named := locate(path)).domain is not None:
            raise
        place = named.path
        fence = ANYWHERE if follow_links else None
        if place.suffix == ".txt" and place.is_file():
            return Found("one domain", (read_list(place, fence=fence),))
        if place.is_dir() and readers.layout(place, fence) == "classes":
            return Found("one domain", (readers.read_folder(place, fence=fence),))
        if place.is_dir() and not readers.folders_in(place) and readers.layout(place, fence) == "images":
            return Found("one domain", (readers.read_images(place, fence=fence),))
        raise


def _examine(findings: Findings, found: Found, workers: int | None, progress: Progress | None) -> Findings:
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    try:
        if any(reading.classes for reading in found.readings) or len(found.readings) > 1:
            benchmark = benchmarks.assemble(found)
            classes, notes = benchmark.classes, benchmark.notes
    except CosdaError as error:
        findings.problems.append(str(error))
    inductive = any(reading.is_split for reading in found.readings)
    for reading in found.readings:
        _count(findings, reading, classes)
    digests = _read_all(findings, found.readings, workers, progress)
    _compare(findings, found.readings, digests)
    return replace(
        findings,
        benchmark=found.name,
        protocol="inductive" if inductive else "transductive",
        classes=list(classes),
        notes=[*dict.fromkeys(note for reading in found.readings for note in reading.notes), *notes],
    )


def _count(findings: Findings, reading: Reading, classes: tuple[str, ...]) -> None:
    """Count a domain's images, and look at its classes and its split."""
    domain = reading.domain
    labels = np.array([], np.int64) if domain.labels is None else domain.labels
    present = np.bincount(labels, minlength=len(reading.classes))
    empty = [name for name, count in zip(reading.classes, present, strict=True) if not count]
    missing = [name for name in classes if name not in reading.classes] if reading.classes else []
    if reading.numbered or reading.shared:  # one that does not occur is missing, and not an empty folder
        empty, missing = [], empty + missing
    findings.domains.append(
        DomainFindings(
            name=domain.name,
            images=len(domain),
            labelled=len(labels),
            train=len(domain.train),
            test=len(domain.test),
            classes=int((present > 0).sum()),
            missing=missing,
            empty=empty,
            ignored=dict(domain.ignored),
        )
    )
    if empty:
        findings.problems.append(f"{domain.name}: no images in the classes {listed(empty)}")
    if domain.ignored:
        findings.warnings.append(f"{domain.name}: ignored files: {domain.ignored_files()}")
    if missing:
        findings.warnings.append(f"{domain.name}: lacks the classes {listed(missing)}")
    for part in ("train", "test"):
        if not len(getattr(domain, part)):
            findings.problems.append(f"{domain.name}: the {part} split is empty")
    if reading.is_split and (both := np.intersect1d(domain.train, domain.test)).size:
        shown = listed([_name(domain, int(position)) for position in both[:3]])
        findings.problems.append(f"{domain.name}: {both.size} images are in train and in test ({shown} …)")


def _name(domain: Domain, position: int) -> str:
    """How the findings call an image."""
    return (
        f"{domain.name}: {as_text(domain.items.names[position]) if isinstance(domain.items, Undecoded) else position}"
    )


def _read_all(
    findings: Findings, readings: tuple[Reading, ...], workers: int | None, progress: Progress | None
) -> list[bytes | None]:
    """The digest of every image of every domain, None where it cannot be read; those become problems."""
    images = [(reading.domain, i) for reading in readings for i in range(len(reading.domain))]

    def look(number: int) -> bytes | str:
        domain, position = images[number]
        try:
            if not isinstance(domain.items, Undecoded):
                return digest(np.ascontiguousarray(domain.items[np.array([position])]).tobytes())
            data = fetch(domain.items, position)
            decode(data, _SIZE)
            return digest(data)
        except Unreadable as error:
            return str(error)

    digests: list[bytes | None] = []
    unreadable: dict[str, int] = defaultdict(int)
    for (domain, position), result in zip(images, in_parallel(look, len(images), workers, progress), strict=True):
        digests.append(result if isinstance(result, bytes) else None)
        if isinstance(result, str):
            findings.unreadable.append((_name(domain, position), result))
            unreadable[domain.name] += 1
    for name, count in unreadable.items():
        findings.problems.append(f"{name}: {count} files are missing or cannot be read (listed as unreadable)")
    return digests


def _compare(findings: Findings, readings: tuple[Reading, ...], digests: list[bytes | None]) -> None:
    """Find equal images within a domain, across domains, across train and test, and under two labels."""
    owners = [(reading, i) for reading in readings for i in range(len(reading.domain))]
    groups: dict[bytes, list[tuple[Reading, int]]] = defaultdict(list)
    for owner, key in zip(owners, digests, strict=True):
        if key is not None:
            groups[key].append(owner)
    counts: dict[str, int] = defaultdict(int)
    tested = {id(reading): set(reading.domain.test.tolist()) for reading in readings if reading.is_split}
    for group in groups.values():
        if len(group) == 1:
            continue
        findings.duplicates.append([_name(reading.domain, i) for reading, i in group])
        names = [reading.domain.name for reading, _ in group]
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                counts[f"{name}: {{}} images are exact copies of another one"] += names.count(name) - 1
        if len(set(names)) > 1:
            counts[f"{{}} images occur in several domains ({', '.join(dict.fromkeys(names))})"] += 1
        for name in dict.fromkeys(names):
            inside = [(r, i) for r, i in group if r.domain.name == name]
            if len({i in tested.get(id(r), ()) for r, i in inside}) > 1:
                counts[f"{name}: {{}} images have copies in both train and test"] += 1
        if len({_label(reading, i) for reading, i in group} - {None}) > 1:
            counts["{} images have copies with another label"] += 1
    findings.warnings.extend(text.format(count) for text, count in counts.items())


def _label(reading: Reading, position: int) -> str | None:
    labels = reading.domain.labels
    return None if labels is None else reading.classes[int(labels[position])]
