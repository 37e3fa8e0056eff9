"""The four data sets of the paper: their names on disk and in its tables, and how they are measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cosda.data.domain import Headline
from cosda.data.readers import plain
from cosda.errors import CosdaError, nearest


@dataclass(frozen=True)
class Known:
    """What the paper says about a data set. ``domains`` maps folder names, in plain form, to the paper's."""

    name: str
    title: str
    domains: Mapping[str, str]
    class_count: int
    headline: Headline = "top1"
    inductive: bool = False
    classes: Mapping[str, str] = field(default_factory=dict)  # folder -> the paper's name, where they differ


def _same(*names: str) -> dict[str, str]:
    return {plain(name): name for name in names}


_VISDA_FOLDERS = "aeroplane bicycle bus car horse knife motorcycle person plant skateboard train truck"
_VISDA_NAMES = "plane bcycl bus car horse knife mcycl person plant sktbrd train truck"
VISDA_CLASSES = dict(zip(_VISDA_FOLDERS.split(), _VISDA_NAMES.split(), strict=True))

OFFICE31 = Known("office31", "Office-31", _same("amazon", "dslr", "webcam"), 31)
OFFICEHOME = Known("officehome", "Office-Home", _same("Art", "Clipart", "Product", "RealWorld"), 65)
VISDA = Known(
    "visda",
    "VisDA-2017",
    {"train": "synthetic", "validation": "real"},
    12,
    headline="per-class",
    classes=VISDA_CLASSES,
)
DOMAINNET = Known(
    "domainnet",
    "DomainNet",
    _same("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
    345,
    inductive=True,
)
KNOWN = (OFFICE31, OFFICEHOME, VISDA, DOMAINNET)


def recognise(names: Iterable[str]) -> Known | None:
    """The data set all of whose domains are among these names of folders or lists."""
    present = {plain(name) for name in names}
    return next((known for known in KNOWN if present >= set(known.domains)), None)


def by_name(name: str) -> Known:
    """The data set of this name, however it is spelt."""
    for known in KNOWN:
        if plain(name) in (known.name, plain(known.title)):
            return known
    names = [known.name for known in KNOWN]
    raise CosdaError(f"unknown benchmark '{name}'.{nearest(name, names)} It is one of: {', '.join(names)}.")


def what_belongs(known: Known | None) -> str:
    """What a path should hold: for an error's text."""
    if known:
        return f"Expected the folder of {known.title}, with {', '.join(known.domains)} in it."
    return (
        "Expected a folder of domain folders, <domain>/<class>/<images> (Office-31, Office-Home, "
        "VisDA-2017, DomainNet or your own), an .npz file, or the name 'digits'."
    )
