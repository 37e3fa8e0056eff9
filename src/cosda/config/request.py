"""What was asked for, and of which data: the two things from which every number of a run follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

from cosda.data.cache import content_key
from cosda.data.domain import Benchmark, Domain, Headline, Protocol_
from cosda.errors import CosdaError, nearest
from cosda.files import as_text, digest
from cosda.models.artifact import Model
from cosda.settings import SHOWN, parse_value, shown

# Options that name a setting, in Python as on the command line: `epochs=5` and `--epochs 5` are `adapt.epochs`.
NAMED = {
    "epochs": "adapt.epochs",
    "batch_size": "adapt.batch_size",
    "edgemix": "adapt.edgemix",
    "carry": "adapt.carry",
    "encoder": "network.encoder",
    "weights": "network.weights",
    "freeze_encoder": "network.freeze_encoder",
    "precision": "network.precision",
    "size": "data.size",
}


class Change(NamedTuple):
    """A setting that somebody wants otherwise: ``[stage.TARGET.][section.]key``, its value, and who said so."""

    key: str
    value: Any
    origin: str


class Options(TypedDict, total=False):
    """What `cosda.adapt`, `cosda.run_chain` and `cosda.train_source` take by name, as the command line does.

    ``settings`` changes any setting, for example ``{"temperature": 0.1, "source.lr": 0.01}``; ``cosda methods NAME``
    lists them. The others are the most usual ones by a shorter name.
    """

    settings: Mapping[str, Any]
    variant: str | None
    ablation: str | None
    seed: int
    select: str
    carry: str | None
    epochs: int | None
    batch_size: int | None
    edgemix: float | None
    encoder: str | None
    weights: str | None
    freeze_encoder: bool | None
    precision: str | None
    size: int | None


@dataclass(frozen=True)
class Request:
    """What somebody asked for. Not yet checked, and without what follows from presets: that is a `Plan`."""

    method: str = "cosda"
    domains: tuple[str, ...] | None = None  # the chain, source first; None is all domains of the data in order
    changes: tuple[Change, ...] = ()  # of settings; the later one wins
    variant: str | None = None
    ablation: str | None = None
    seed: int = 0
    select: str = "last"
    model: Model | None = None  # a trained model to start from

    @classmethod
    def of(
        cls,
        method: str,
        domains: Sequence[str] | None = None,
        model: Model | None = None,
        **options: Unpack[Options],
    ) -> Request:
        """The request of a Python program; see `Options`."""
        rest: dict[str, Any] = dict(options)
        settings = rest.pop("settings", None) or {}
        named = [
            Change(NAMED[name], value, f"{name}={shown(value)}")
            for name in NAMED
            if (value := rest.pop(name, None)) is not None
        ]
        given = [Change(key, _frozen(value), f"settings: {key}={shown(value)}") for key, value in settings.items()]
        for name in rest.keys() - {"variant", "ablation", "seed", "select"}:
            known = (*Options.__annotations__,)
            raise TypeError(f"there is no option '{name}'.{nearest(name, known)} Options: {', '.join(known)}.")
        return cls(method, tuple(domains) if domains else None, (*named, *given), model=model, **rest)

    def of_source(self) -> Request:
        """The same, where options that usually mean the adaptation (`--epochs`) mean the training of the source."""
        moved = {NAMED[name]: f"source.{name}" for name in ("epochs", "batch_size", "edgemix")}
        changes = tuple(change._replace(key=moved.get(change.key, change.key)) for change in self.changes)
        return replace(self, changes=changes)


def parse_changes(texts: Sequence[str]) -> tuple[Change, ...]:
    """Read the texts ``key=value`` of ``--set``; the value is TOML, or a bare word."""
    found = []
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        origin = f"--set {as_text(text if len(text) <= SHOWN else f'{text[:SHOWN]}…')}"
        if not equals:
            raise CosdaError(f"{origin}: write key=value, for example --set temperature=0.1.")
        found.append(Change(key, _frozen(parse_value(value)), origin))
    return tuple(found)


def _frozen(value: Any) -> Any:
    """A list becomes a tuple, so that requests can be compared and sent about."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class Data:
    """What is known of a run's data before any image is read: names, classes, protocol, and a name for the content."""

    benchmark: str
    domains: tuple[str, ...]  # the chain, source first
    classes: tuple[str, ...]
    protocol: Protocol_ = "transductive"
    headline: Headline = "top1"
    fingerprint: str = ""  # names images, labels and splits of all domains in the chain
    source_fingerprint: str = ""  # and those of the source alone
    input_width: int | None = None  # of feature vectors; None for images

    @classmethod
    def of(cls, benchmark: Benchmark, domains: Sequence[str] | None = None, cache: Path | None = None) -> Data:
        """The data of a chain of a benchmark's domains; the default is all in order."""
        chain = benchmark.ordered(tuple(domains) if domains else tuple(benchmark.domains))
        return cls(
            benchmark=benchmark.name,
            domains=tuple(domain.name for domain in chain),
            classes=benchmark.classes,
            protocol=benchmark.protocol,
            headline=benchmark.headline,
            fingerprint=fingerprint(chain, cache),
            source_fingerprint=fingerprint(chain[:1], cache),
            input_width=chain[0].width,
        )


def fingerprint(domains: Sequence[Domain], cache: Path | None = None) -> str:
    """Names images, labels and splits of domains, so that other data never continue an old run."""
    return digest([[d.name, content_key(d, cache), *map(_list, (d.labels, d.train, d.test))] for d in domains])


def _list(values: Any) -> list[int] | None:
    return None if values is None else values.tolist()
