"""Known benchmarks: their names on disk and in the paper's tables, and how they are measured.

To add one, write its settings into ``presets/<name>.toml`` and one line into `BENCHMARKS`. A program outside adds its
own with ``BENCHMARKS["mine"] = Known("mine", ..., preset="mine.toml")``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cosda.registry import Registry

if TYPE_CHECKING:  # help texts are made from this file, and should not wait for numpy
    from cosda.data.domain import Benchmark, Headline


@dataclass(frozen=True)
class Known:
    """What is known about a benchmark.

    Args:
        name: Its name on the command line.
        title: Its name in texts.
        domains: From the names of its folders, in plain form (see `plain`), to those of the tables, in their order.
        class_count: How many classes it has; data with fewer are noted.
        headline: The accuracy that its tables show.
        inductive: Whether it is measured on images that are not trained on.
        classes: From the names of all class folders to those of the tables, where some differ; folders with other
            classes are then another benchmark.
        preset: A TOML file with its settings, where that is not ``presets/<name>.toml`` of this package.
        make: Makes an embedded benchmark, which needs no data. The others are recognised by their domains.
    """

    name: str
    title: str
    domains: Mapping[str, str]
    class_count: int
    headline: Headline = "top1"
    inductive: bool = False
    classes: Mapping[str, str] = field(default_factory=dict)
    preset: Path | str | None = None
    make: Callable[[], Benchmark] | None = None


def plain(name: str) -> str:
    """A name as people recognise it: ``Real World``, ``Real_World`` and ``RealWorld`` are one."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _same(*names: str) -> dict[str, str]:
    return {plain(name): name for name in names}


def _digits() -> Benchmark:
    from cosda.data import digits  # lazily: a help text needs no images

    return digits.load()


_VISDA_FOLDERS = "aeroplane bicycle bus car horse knife motorcycle person plant skateboard train truck"
_VISDA_NAMES = "plane bcycl bus car horse knife mcycl person plant sktbrd train truck"

KNOWN = (
    Known("office31", "Office-31", _same("amazon", "dslr", "webcam"), 31),
    Known("officehome", "Office-Home", _same("Art", "Clipart", "Product", "RealWorld"), 65),
    Known(
        "visda",
        "VisDA-2017",
        {"train": "synthetic", "validation": "real"},
        12,
        headline="per-class",
        classes=dict(zip(_VISDA_FOLDERS.split(), _VISDA_NAMES.split(), strict=True)),
    ),
    Known(
        "domainnet",
        "DomainNet",
        _same("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
        345,
        inductive=True,
    ),
    Known("digits", "digits, embedded", _same("print", "colour", "outline", "hand"), 10, inductive=True, make=_digits),
)
BENCHMARKS = Registry("benchmark", {known.name: known for known in KNOWN}, group="cosda.benchmarks", of=Known)


def recognise(names: Iterable[str]) -> Known | None:
    """The benchmark all of whose domains are among these names of folders or lists."""
    present = {plain(name) for name in names}
    return next((known for known in BENCHMARKS.values() if not known.make and present >= set(known.domains)), None)


def by_name(name: str) -> Known:
    """The benchmark of this name, however it is spelt.

    Raises:
        CosdaError: there is none.
    """
    spelt = {plain(form): known.name for known in BENCHMARKS.values() for form in (known.name, known.title)}
    return BENCHMARKS.find(spelt.get(plain(name), name))


def what_belongs(known: Known | None = None) -> str:
    """What to give as the data of a benchmark: for help texts and errors."""
    if known and not known.make:
        return f"the folder of {known.title}, with {', '.join(known.domains)} in it"
    titles = ", ".join(known.title for known in BENCHMARKS.values() if not known.make)
    embedded = " or ".join(f"'{name}'" for name, known in BENCHMARKS.items() if known.make)
    return (
        f"a folder of domain folders, <domain>/<class>/<images> ({titles} or your own), an .npz, CSV or parquet file, "
        f"a data set that datasets has saved, hf:ORG/NAME, or the name {embedded}"
    )
