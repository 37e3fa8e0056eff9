"""How good `cosda monitor` is: false alarms on halves of one domain, and how many shifts are found.

    python studies/monitor.py out/studies/monitor                         # the embedded digits; some minutes
    python studies/monitor.py out/studies/monitor OFFICE31 --into docs/monitor.md

A source model is trained on one half of each domain. The other half, which it has not seen, is halved at random again
and again: one part makes the profile, of the other come new images. With those of the same domain an alarm is a false
one; with as many images of another domain it is right.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tables import markdown, put_into
from torch import Tensor, nn

import cosda
from cosda.data.cache import content_key
from cosda.data.domain import Benchmark, everything
from cosda.data.loader import Loader, open_loader
from cosda.judge.drift import Seen, compare, corrected
from cosda.models.profile import PLACES, DomainProfile, group_means
from cosda.models.router import Gauge
from cosda.run.evaluate import EVALUATION_BATCH
from cosda.run.features import featurise
from cosda.run.prepare import readable
from cosda.run.profile import later_places, routing_statistics
from cosda.run.source import split_off

ALPHA = 0.05
HALVINGS = 100  # of each domain, for false alarms
SHIFTED = 40  # of these are compared with other domains too
HOLDOUT = 0.5
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Family:
    """Source models of all domains of a benchmark, and what each makes of all images."""

    name: str
    seen: Mapping[tuple[str, str], Seen]  # by source and domain
    trained: Mapping[str, np.ndarray]  # which images of its own domain each model was trained on
    unseen: Mapping[str, np.ndarray]

    @property
    def domains(self) -> tuple[str, ...]:
        """In order."""
        return tuple(self.trained)


def family(name: str, benchmark: Benchmark, out: Path, late: bool | None, **options: Any) -> Family:
    """Train the models, and look at all images with each of them.

    ``late`` is None where whole networks are trained. Otherwise the encoder is frozen: it says whether early layers or
    features are the routing statistics.
    """
    seen: dict[tuple[str, str], Seen] = {}
    early: dict[str, Tensor] = {}
    trained, unseen = {}, {}
    machine = cosda.Machine(threads=1, cache=out / "cache")
    for source in benchmark.domains:
        settings = {"source.holdout": HOLDOUT}
        model = cosda.train_source(benchmark, source, out=out, settings=settings, machine=machine, **options).model
        trained[source], _ = split_off(benchmark[source].train, HOLDOUT, 0)
        unseen[source] = np.setdiff1d(everything(len(benchmark[source])), trained[source])
        for domain in benchmark:
            images = readable(domain, model.preprocessing.size, machine, cosda.Watcher()).domain
            if late is None or (not late and domain.name not in early):  # a frozen encoder is the same for all sources
                early[domain.name] = routing_statistics(Gauge(model.network.encoder), whole(images, model))
            network = model.network
            if late is not None:
                key = content_key(domain, out / "cache")
                images = featurise(
                    images, key, network.encoder, model.preprocessing, CPU, out / "cache", cosda.Watcher()
                )
                network = network.with_encoder(nn.Identity())
            if late:
                early[domain.name] = routing_statistics(Gauge(nn.Identity(), late=True), whole(images, model))
            later = later_places(network, whole(images, model))
            seen[source, domain.name] = {"early": early[domain.name], **later}
    return Family(name, seen, trained, unseen)


def whole(domain: cosda.Domain, model: cosda.Model) -> Loader:
    """All images of a domain."""
    domain = replace(domain, test=everything(len(domain)))
    return open_loader(domain, "test", model.preprocessing, CPU, EVALUATION_BATCH)


def rows_of(seen: Seen, positions: np.ndarray) -> Seen:
    """Some images of all."""
    return {place: values[torch.from_numpy(positions)] for place, values in seen.items()}


def profile_of(seen: Seen) -> DomainProfile:
    """What of a profile the test needs."""
    nothing = torch.empty(0)
    groups = {place: group_means(values) for place, values in seen.items()}
    return DomainProfile("known", len(seen["early"]), nothing, None, nothing, groups=groups)


@dataclass(frozen=True)
class Test:
    """New images of a domain, compared with a profile of another one or the same."""

    source: str
    domain: str
    places: Mapping[str, float]

    @property
    def alarm(self) -> bool:
        """Whether drift was found."""
        return bool(self.places) and corrected(dict(self.places)) <= ALPHA


def halvings(models: Family, images: int, known: str) -> Iterator[Test]:
    """All halvings of all domains, and so many new images of every domain for each."""
    for source in models.domains:
        for number in range(HALVINGS):
            rng = np.random.default_rng([number, images])
            order = rng.permutation(models.unseen[source])
            first, second = order[: len(order) // 2], order[len(order) // 2 :]
            made_of = first if known == "unseen" else models.trained[source]
            profile = profile_of(rows_of(models.seen[source, source], made_of))
            for domain in models.domains if number < SHIFTED else (source,):
                others = second if domain == source else everything(len(models.seen[source, domain]["early"]))
                new = rows_of(models.seen[source, domain], rng.permutation(others)[:images])
                yield Test(source, domain, compare(profile, new, ALPHA))


def rate(found: Sequence[bool]) -> str:
    """In percent, with how many."""
    return f"{100 * np.mean(found):.1f} ({len(found)})" if found else ""


def at(place: str, some: Sequence[Test]) -> str:
    """The rate of alarms if this place were the only one."""
    return rate([test.places[place] <= ALPHA for test in some if place in test.places])


def shown(name: str, images: int, done: Sequence[Test]) -> list[str]:
    """A row of the main table."""
    same, other = split(done)
    pairs: dict[tuple[str, str], list[bool]] = {(test.source, test.domain): [] for test in other}
    for test in other:
        pairs[test.source, test.domain].append(test.alarm)
    worst = min(pairs, key=lambda pair: np.mean(pairs[pair]))
    told = "" if all(pairs[worst]) else f"{' → '.join(worst)} {100 * np.mean(pairs[worst]):.0f}"
    return [name, str(images), rate([test.alarm for test in same]), rate([test.alarm for test in other]), told]


def by_place(name: str, known: str, done: Sequence[Test]) -> Iterator[list[str]]:
    """Two rows of the table of places."""
    for words, some in zip(("false alarms", "found"), split(done), strict=True):
        yield [name, known, words, *(at(place, some) for place in PLACES)]


def split(done: Sequence[Test]) -> tuple[list[Test], list[Test]]:
    """With images of the same domain, and of another one."""
    same = [test for test in done if test.source == test.domain]
    return same, [test for test in done if test.source != test.domain]


def tables(models: Sequence[Family]) -> dict[str, str]:
    """Both tables by their names."""
    main = [["data", "new images", "false alarms", "shifts found", "worst pair"]]
    places = [["data", "profile made of", "", *PLACES]]
    for each in models:
        few, done = (list(halvings(each, count, "unseen")) for count in (40, 100))
        main += [shown(each.name, 40, few), shown(each.name, 100, done)]
        places += by_place(each.name, "images that the model has not seen", done)
        places += by_place(each.name, "its training images", list(halvings(each, 100, "trained")))
    return {"monitor": markdown(main), "places": markdown(places)}


def main(out: Path, office: Path | None, into: Path | None) -> None:
    """All families, and both tables."""
    models = [family("digits", cosda.load_benchmark("digits"), out, late=None)]
    if office is not None:
        benchmark, options = cosda.load_benchmark(office), {"encoder": "lite0", "freeze_encoder": True}
        models.append(family("Office-31, frozen features of lite0", benchmark, out, late=True, **options))
        models.append(family("Office-31, images, lite0", benchmark, out, late=False, **options))
    made = tables(models)
    if into is None:
        print("\n\n".join(made.values()))
    else:
        into.write_text(put_into(into.read_text(), made))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where models and caches are kept")
    parser.add_argument("office", type=Path, nargs="?", help="the folder of Office-31")
    parser.add_argument("--into", type=Path, help="a Markdown file with the lines <!-- monitor --> and <!-- places -->")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    main(asked.out, asked.office, asked.into)
