"""How good the verdict is: adaptations that work and adaptations that are made to fail, with their truth.

    python studies/verdict.py run out/studies/verdict DIGITS.npz OFFICE31     # goes on where it was stopped
    python studies/verdict.py fit out/studies/verdict --into docs/verdict.md  # writes fitted.json and the tables

`run` adapts source models of the embedded digits, of three sets of digits, and of Office-31 (features of a frozen
EfficientNet-Lite0) to each other's domains, measures target and source on labelled test images before and after, and
keeps that beside the verdict's evidence. A run is harmful if it lost more than two points on either. What the models
said is kept too, so that other evidence can be tried without doing runs again. `fit` fits the regressions of
`cosda.judge` and the limits of the risk on half of the settings (pairs of domains), and measures both halves. The file
of the package comes from all settings.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.ndimage import gaussian_filter, rotate
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from tables import markdown, put_into
from torch import Tensor

import cosda
from cosda.data import digits
from cosda.data.loader import open_loader
from cosda.judge import verdict as judging
from cosda.judge.evidence import ESTIMATORS, distance
from cosda.judge.fitted import HARM, SENTENCES, Fitted, Regression, Trees, scaled, unscaled
from cosda.judge.looking import Answers, look
from cosda.judge.stand_ins import DRAWN
from cosda.judge.verdict import gathered
from cosda.models.artifact import weights_key
from cosda.records.verdict import WORDS
from cosda.run.prepare import readable

IMAGES = 300  # of a target; one site's first week
EPOCHS = 4
SEEDS = (0, 1)  # of source models that look at changed domains; the first is adapted
LEARNT = 0.5  # accuracy on its own domain from which a source model is one
RULES = ("bank", "last", "interpolate=0.5")
METHODS = ("aad", "nrc", "shot", "cosda")
FAILURES = (
    "rate x10",
    "rate x100",
    "rate x1000",
    "wrong classes",
    "noise",
    "one class",
    "wrong normalisation",
    "3 images",
    "shuffled pixels",
    "momentum 0",
)


@dataclass(frozen=True)
class Setting:
    """One adaptation."""

    family: str
    source: str
    target: str
    method: str
    carry: str
    kind: str  # "good", a gentler or longer good one, or a failure
    shift: str = "as it is"  # what was done to the target's images, those that are measured too

    @property
    def name(self) -> str:
        """Of its line."""
        return "/".join((self.family, self.source, self.target, self.method, self.carry, self.kind, self.shift))


def settings(families: Mapping[str, tuple[str, ...]]) -> Iterator[Setting]:
    """Good ones: every pair, method and carry rule. Failures: every pair with every kind, methods and rules in turn.

    Beside them every pair and method with the target's images changed.
    """
    for family, domains in families.items():
        for number, (source, target) in enumerate(itertools.permutations(domains, 2)):
            for method, carry in itertools.product(METHODS, ("bank", "last")):
                yield Setting(family, source, target, method, carry, "good")
            yield Setting(family, source, target, METHODS[number % 4], "interpolate=0.5", "good")
            yield Setting(family, source, target, METHODS[(number + 1) % 4], "last", "rate /10")
            yield Setting(family, source, target, METHODS[(number + 2) % 4], "bank", "long")
            for place, kind in enumerate(FAILURES):
                method = METHODS[(number + place) % 4]
                yield Setting(family, source, target, method, ("last", "bank")[(number // 4 + place) % 2], kind)
            shifts = list(SHIFTS[family == "features"])
            for place, method in enumerate(METHODS):
                shift = shifts[(4 * number + place) % len(shifts)]
                yield Setting(family, source, target, method, "last", "good", shift)


# --- Changed domains --------------------------------------------------------------------------------------------------
# The two domains of a pair say little of how accuracy hangs together with what is seen without labels; the same domains
# blurred, turned, noisy, … say it many times over, and need no training.

Change = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def _noisy(deviation: float) -> Change:
    return lambda items, rng: items + deviation * rng.standard_normal(items.shape, dtype=np.float32)


def _blurred(share: float) -> Change:
    return lambda items, rng: gaussian_filter(items, (0, share * items.shape[1], share * items.shape[2], 0))


def _turned(degrees: float) -> Change:
    return lambda items, rng: rotate(items, degrees, axes=(1, 2), reshape=False, order=1, mode="nearest")


def _contrast(factor: float) -> Change:
    return lambda items, rng: items.mean() + factor * (items - items.mean())


def _hidden(share: float) -> Change:
    """A grey square somewhere in each image."""

    def change(items: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        items, size = items.copy(), round(share * items.shape[1])
        for image, (top, left) in zip(items, rng.integers(0, items.shape[1] - size + 1, (len(items), 2)), strict=True):
            image[top : top + size, left : left + size] = 128
        return items

    return change


def _dropped(share: float) -> Change:
    return lambda items, rng: np.where(rng.random(items.shape) < share, items.mean(axis=0), items)


def _spread(factor: float) -> Change:
    """Features with more noise, in units of their own deviations."""
    return lambda items, rng: items + factor * items.std(axis=0) * rng.standard_normal(items.shape, dtype=np.float32)


def _paired(share: float) -> Change:
    """Every image with a part of another one in it."""
    return lambda items, rng: (1 - share) * items + share * items[rng.permutation(len(items))]


MIXED = "half of another domain"
IMAGE_SHIFTS: dict[str, Change | None] = {
    "noise 30": _noisy(30),
    "noise 80": _noisy(80),
    "blur 3%": _blurred(0.03),
    "blur 6%": _blurred(0.06),
    "turned 20": _turned(20),
    "turned 40": _turned(40),
    "contrast 0.4": _contrast(0.4),
    "contrast -0.7": _contrast(-0.7),
    "brighter": lambda items, rng: items + 70,
    "hidden 0.35": _hidden(0.35),
    "hidden 0.55": _hidden(0.55),
    "paired 0.3": _paired(0.3),
    MIXED: None,
}
FEATURE_SHIFTS: dict[str, Change | None] = {
    "noise 0.5": _spread(0.5),
    "noise 1": _spread(1.0),
    "noise 2": _spread(2.0),
    "dropped 0.3": _dropped(0.3),
    "dropped 0.6": _dropped(0.6),
    "dropped 0.8": _dropped(0.8),
    "times 0.5": lambda items, rng: 0.5 * items,
    "times 1.5": lambda items, rng: 1.5 * items,
    "paired 0.2": _paired(0.2),
    "paired 0.35": _paired(0.35),
    MIXED: None,
}
SHIFTS = (IMAGE_SHIFTS, FEATURE_SHIFTS)


def shifted(domain: cosda.Domain, shift: str, other: cosda.Domain) -> cosda.Domain:
    """A domain with its images changed; half of them may be of another domain, with its labels."""
    items = np.asarray(domain.items)
    change, rng = SHIFTS[items.ndim == 2].get(shift), np.random.default_rng(1)
    if shift == Setting.shift:
        return domain
    if change is not None:
        changed = change(items.astype(np.float32), rng)
        changed = changed.clip(0, 255).astype(np.uint8) if items.ndim == 4 else changed.astype(np.float32)
        return replace(domain, items=changed)
    assert domain.labels is not None
    assert other.labels is not None
    places, others = rng.random(len(items)) < 0.5, np.asarray(other.items)
    if items.ndim == 4:  # of the same size
        pixels = torch.from_numpy(others).permute(0, 3, 1, 2).float()
        sized = torch.nn.functional.interpolate(pixels, items.shape[1:3], mode="bilinear", antialias=True)
        others = sized.permute(0, 2, 3, 1).round().numpy().astype(np.uint8)
    chosen = rng.integers(0, len(others), len(items))
    where = places.reshape(-1, *(1,) * (items.ndim - 1))
    return replace(
        domain,
        items=np.where(where, others[chosen], items),
        labels=np.where(places, other.labels[chosen], domain.labels),
    )


def beside(benchmark: cosda.Benchmark, target: str) -> cosda.Domain:
    """The domain that comes after another one."""
    names = list(benchmark.domains)
    return benchmark[names[(names.index(target) + 1) % len(names)]]


def not_given(domain: cosda.Domain) -> cosda.Domain:
    """The domain to be measured on all images that nobody adapts to."""
    return replace(domain, test=np.setdiff1d(np.arange(len(domain)), chosen_of(domain)))


def chosen_of(domain: cosda.Domain) -> np.ndarray:
    """The images that are given."""
    return np.sort(np.random.default_rng(0).permutation(domain.train)[:IMAGES])


# --- Domains ----------------------------------------------------------------------------------------------------------


def three_digits(file: Path) -> cosda.Benchmark:
    """MNIST, USPS and the embedded handwriting."""
    embedded, given = digits.load(), np.load(file)
    three = {"hand": embedded["hand"]}
    for name in ("mnist", "usps"):
        rng = np.random.default_rng(0)
        parts = [rng.permutation(len(given[f"{name}_{split}_labels"]))[:1000] for split in ("train", "test")]
        data = {
            f"{split}_{what}": given[f"{name}_{split}_{what}"][part]
            for split, part in zip(("train", "test"), parts, strict=True)
            for what in ("images", "labels")
        }
        three[name] = cosda.load_domain(data, embedded.classes, name=name)
    return cosda.Benchmark("three", three, embedded.classes, protocol="inductive")


def features(office: Path, out: Path) -> cosda.Benchmark:
    """Office-31 through a frozen EfficientNet-Lite0; half of each domain to train on, half to measure."""
    from cosda.models.encoders import build_encoder

    stored = out / "features.npz"
    if not stored.exists():
        encoder = build_encoder("lite0", None).eval()
        arrays: dict[str, Any] = {}
        for domain in cosda.load_benchmark(office):
            labels = domain.labels
            assert labels is not None
            arrays |= {f"{domain.name}_features": seen_by(encoder, domain), f"{domain.name}_labels": labels}
        arrays["others"] = seen_by(encoder, cosda.load_domain(np.asarray(digits.load()["colour"].items[:400])))
        np.savez(stored, **arrays)
    given, domains = np.load(stored), {}
    for name in ("amazon", "dslr", "webcam"):
        labels = given[f"{name}_labels"].astype(np.int64)
        order = np.random.default_rng(0).permutation(len(labels))
        half = len(order) // 2
        parts = np.sort(order[:half]), np.sort(order[half:])
        domains[name] = cosda.Domain(name, given[f"{name}_features"], labels, *parts)
    classes = tuple(f"{number:02}" for number in range(31))
    return cosda.Benchmark("office31-features", domains, classes, protocol="inductive")


def seen_by(encoder: Any, domain: cosda.Domain) -> np.ndarray:
    """Features of all images of a domain."""
    from cosda.data.domain import everything
    from cosda.data.loader import open_loader
    from cosda.models.bn_folding import evaluating
    from cosda.run.machine import Machine
    from cosda.run.prepare import readable

    how = encoder.preprocessing
    packed = readable(replace(domain, test=everything(len(domain))), how.size, Machine(), cosda.Watcher()).domain
    loader = open_loader(packed, "test", how, torch.device("cpu"), 32)
    with evaluating(encoder) as fast:
        return torch.cat([fast(batch.images).clone() for batch in loader.sweep("test")]).numpy()


def given_images(setting: Setting, domain: cosda.Domain, others: Callable[[int], np.ndarray]) -> cosda.Domain:
    """The images of a target as somebody gives them, which may be the wrong ones."""
    rng, chosen = np.random.default_rng(1), chosen_of(domain)
    items, labels = np.asarray(domain.items[chosen]), domain.labels
    assert labels is not None
    flat = items.ndim == 2
    match setting.kind:
        case "wrong classes":
            items = others(len(items)).astype(items.dtype)
        case "noise":
            drawn = rng.normal(items.mean(axis=0), items.std(axis=0) + 1e-6, items.shape) if flat else None
            items = drawn.astype(np.float32) if drawn is not None else rng.integers(0, 256, items.shape, dtype=np.uint8)
        case "one class":
            items = items[labels[chosen] == np.bincount(labels[chosen]).argmax()]
            items = np.concatenate([items] * 9)[:IMAGES] if len(items) < 20 else items
        case "wrong normalisation":
            items = 3 * items + 1 if flat else (255 - items // 3).astype(np.uint8)
        case "3 images":
            items = items[:3]
        case "shuffled pixels":
            rows = items.reshape(len(items), -1, *(() if flat else (3,)))
            items = np.stack([row[rng.permutation(len(row))] for row in rows]).reshape(items.shape)
        case _:
            pass
    everything = np.arange(len(items))
    return cosda.Domain(domain.name, items, None, everything, everything)


def changes(setting: Setting, rates: tuple[float, float]) -> dict[str, Any]:
    """What is set otherwise than usual."""
    factor = {"rate x10": 10.0, "rate x100": 100.0, "rate x1000": 1000.0, "rate /10": 0.1}.get(setting.kind, 1.0)
    found: dict[str, Any] = {"adapt.lr": rates[0] * factor, "adapt.lr_end": rates[1] * factor}
    if setting.kind == "momentum 0":
        found |= {"momentum": [0.0, 0.0]} if setting.method == "cosda" else {"adapt.momentum": 0.0}
    return found | {"adapt.epochs": 2 * EPOCHS if setting.kind == "long" else EPOCHS}


class Study:
    """Source models and domains, and what all runs need of them; made when they are asked for, and once."""

    def __init__(self, out: Path, digits_file: Path, office: Path, only: str = "") -> None:
        made_by = {
            "digits": digits.load,
            "three digits": lambda: three_digits(digits_file),
            "features": lambda: features(office, out),
        }
        self.out, self.office, self.machine = out, office, cosda.Machine(threads=1)
        self.families = {name: make() for name, make in made_by.items() if not only or name == only}

    @cache  # noqa: B019 (there is one study)
    def source(self, family: str, name: str, seed: int = 0) -> cosda.Model:
        """Trained on a domain."""
        small = {"network.encoder": "small", "network.bottleneck": 64, "data.size": 32, "data.flip": False}
        small |= {"source.epochs": 15, "source.lr": 0.2, "source.lr_end": 0.004, "source.encoder_rate": 1.0}
        heads: dict[str, Any] = {"source.epochs": 20, "source.lr": 1e-2, "source.lr_end": 2e-4}
        given = {**(heads if family == "features" else small), "source.holdout": 0.0}
        return cosda.train_source(
            self.families[family], name, out=self.out / "sources", machine=self.machine, settings=given, seed=seed
        ).model

    @cache  # noqa: B019
    def domain(self, family: str, name: str, shift: str) -> cosda.Domain:
        """A target, as it is or changed."""
        benchmark = self.families[family]
        return shifted(benchmark[name], shift, beside(benchmark, name))

    @cache  # noqa: B019
    def others(self, family: str) -> np.ndarray:
        """Images of other classes."""
        if family == "features":
            return np.load(self.out / "features.npz")["others"]
        packed = readable(cosda.load_benchmark(self.office)["amazon"], 28, self.machine, cosda.Watcher()).domain
        return np.asarray(packed.items[np.arange(0, 5 * IMAGES, 5)])[:, :32, :32]

    def accuracy(self, model: cosda.Model, domain: cosda.Domain) -> float:
        """Of a model on a domain's test images."""
        return cosda.evaluate(model, domain, machine=self.machine).top1

    @cache  # noqa: B019
    def accuracy_before(self, family: str, source: str, domain: str, shift: str, seed: int = 0) -> float:
        """Of a source model on all images of a domain that are not given; on its own those that it did not learn."""
        measured = self.domain(family, domain, shift)
        model = self.source(family, source, seed)
        return self.accuracy(model, measured if domain == source else not_given(measured))

    def learnt(self, family: str, name: str, seed: int = 0) -> bool:
        """Whether a source model knows its own domain."""
        return self.accuracy_before(family, name, name, Setting.shift, seed) >= LEARNT


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a study that are there."""
    return map(json.loads, path.read_text().splitlines() if path.exists() else ())


def add(path: Path, line: Mapping[str, Any]) -> None:
    """Write a line."""
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def run(out: Path, digits_file: Path, office: Path, only: str = "") -> None:
    """All that is not there yet, or that of one family: shifts, then adaptations."""
    out.mkdir(parents=True, exist_ok=True)
    study, tail = Study(out, digits_file, office, only), f"{only and '-' + only.replace(' ', '-')}.jsonl"
    wanted = list(settings({family: tuple(benchmark.domains) for family, benchmark in study.families.items()}))
    # In an order by chance, so that those that are done are a sample of all.
    wanted = [wanted[place] for place in np.random.default_rng(0).permutation(len(wanted))]
    adapt_all(study, out / f"runs{tail}", [each for each in wanted if each.shift == Setting.shift])
    look_at_shifts(study, out / f"shifts{tail}")
    adapt_all(study, out / f"runs{tail}", [each for each in wanted if each.shift != Setting.shift])


def look_at_shifts(study: Study, path: Path) -> None:
    """What source models say of changed domains, and how often they are right; nothing is trained but the sources."""
    done = {line["name"] for line in lines_of(path)}
    for family, benchmark in study.families.items():
        shifts = (Setting.shift, *SHIFTS[family == "features"])
        for source, target, shift, seed in itertools.product(benchmark.domains, benchmark.domains, shifts, SEEDS):
            name = f"{family}/{source}/{target}/{shift}/{seed}"
            if name in done or not study.learnt(family, source, seed):
                continue
            model, domain = study.source(family, source, seed), study.domain(family, target, shift)
            # Of its own domain those that it was not trained on.
            chosen = chosen_of(replace(domain, train=domain.test) if target == source else domain)
            given = replace(domain, train=chosen).without_labels()
            loader = open_loader(given, "train", model.preprocessing, torch.device("cpu"), 256)
            answers = look(model.network, loader)
            calibration = model.network.profile and model.network.profile.calibration
            assert calibration is not None
            evidence = gathered(answers, answers, calibration)
            evidence["distance"] = distance(model.network, loader, frozen=False)
            keep(study.out / "answers" / name.replace("/", "_"), {"before": answers})
            truth = study.accuracy_before(family, source, target, shift, seed)
            facts = {"family": family, "source": source, "target": target, "shift": shift, "seed": seed}
            add(path, {"name": name, **facts, "truth": truth, "evidence": evidence})


def keep(path: Path, seen: Mapping[str, Answers | Tensor]) -> None:
    """Write down what models said, so that other evidence can be made of it without doing runs again."""
    path.parent.mkdir(exist_ok=True)
    arrays: dict[str, np.ndarray] = {}
    for when, said in seen.items():
        if isinstance(said, Tensor):
            arrays[when] = said.numpy().astype(np.float32)
            continue
        arrays[f"{when} logits"] = said.logits.numpy().astype(np.float32)
        arrays[f"{when} features"] = said.features.numpy().astype(np.float16)
        arrays[f"{when} noisy"] = said.noisy.numpy().astype(np.float32)
        arrays[f"{when} views"] = torch.stack(said.views).numpy().astype(np.float32)
    np.savez_compressed(path.with_name(path.name + ".npz"), **arrays)  # type: ignore[arg-type]


def adapt_all(study: Study, path: Path, wanted: Sequence[Setting]) -> None:
    """Adaptations with their truth."""
    done = {line["name"] for line in lines_of(path)}
    made: dict[Any, Any] = {}
    seen: list[tuple[str, Any]] = []  # by the run at hand
    original = judging.stand_ins, judging.look, judging.said_of

    def remembered(network: Any, like: Tensor, seed: int = 0, **options: Any) -> Any:
        """The same network and inputs give the same stand-ins, which are made once."""
        key = weights_key(network), float(like.double().sum())
        if key not in made:
            made[key] = original[0](network, like, seed, **options)
        return made[key]

    def looked(*given: Any) -> Any:
        seen.append(("images", original[1](*given)))
        return seen[-1][1]

    def said(network: Any, images: Tensor) -> Tensor:
        seen.append(("drawn" if images.dim() == 2 and len(images) == DRAWN else "known", original[2](network, images)))
        return seen[-1][1]

    judging.stand_ins, judging.look, judging.said_of = remembered, looked, said  # type: ignore[assignment]
    for setting in wanted:
        if setting.name in done or not study.learnt(setting.family, setting.source):
            continue
        seen.clear()
        target = study.domain(setting.family, setting.target, setting.shift)
        known = study.domain(setting.family, setting.source, Setting.shift)
        given = given_images(setting, target, lambda count, family=setting.family: study.others(family)[:count])  # type: ignore[misc]
        rates = (2e-3, 1e-3) if setting.family == "features" else (1e-2, 5e-3)
        line: dict[str, Any] = {"name": setting.name, **vars(setting)}
        line["before"] = {
            "known": study.accuracy_before(setting.family, setting.source, setting.source, Setting.shift),
            "target": study.accuracy_before(setting.family, setting.source, setting.target, setting.shift),
        }
        try:
            result = cosda.adapt(
                study.source(setting.family, setting.source),
                given,
                setting.method,
                machine=study.machine,
                carry=setting.carry,
                settings=changes(setting, rates),
            )
            assert result.verdict is not None
            line["after"] = {
                "known": study.accuracy(result.model, known),
                "target": study.accuracy(result.model, not_given(target)),
            }
            line["verdict"] = result.verdict.as_json()
        except cosda.CosdaError as error:  # refused before or during training: nothing is written
            line["refused"] = str(error)
        found: dict[str, Any] = {}
        for what, answered in seen:
            name = "" if what == "images" else what + " "
            found[f"{name}after" if f"{name}before" in found else f"{name}before"] = answered
        keep(study.out / "answers" / setting.name.replace("/", "_"), found)
        add(path, line)


OWN_IMAGES = ("good", "rate /10", "long", "rate x10", "rate x100", "rate x1000", "momentum 0")  # of the target itself
WORKING = ("good", "rate /10", "long")  # nothing was made to fail
BEFORE = (*(f"{name}, before" for name in ESTIMATORS), "diversity before", "distance")
AFTER = (*BEFORE, *(f"{name}, after" for name in ESTIMATORS), "agreement", "agreement where sure", "diversity")
RISK = (
    *("kept", "drawn", "routed"),
    *("agreement", "agreement where sure", "diversity", "views, after", "noise, after", "distance"),
)
PENALTY = 1.0  # of the estimates' regressions, on standardised numbers; chosen beforehand
STRENGTH = 0.3  # of the risk's regression: the inverse of its penalty
CHANGED = 0.3  # what a changed domain weighs beside one as it is
TREES, TREE_SHARE = 40, 0.3  # how many, and their share of the log-odds of the risk
FALSE_ALARMS, MISSED = 0.01, 0.03  # what the limits aim at, with a margin: good runs rejected, harmful ones accepted

Pair = tuple[str, str, str]  # family, source, target: by which settings are divided


@dataclass(frozen=True)
class Point:
    """What was seen of a model, and its true accuracy."""

    pair: Pair
    evidence: Mapping[str, float]
    truth: float
    weight: float = 1.0


@dataclass(frozen=True)
class Done:
    """A finished line of the study."""

    setting: Setting
    before: Mapping[str, float]
    after: Mapping[str, float]
    verdict: cosda.Verdict

    @property
    def loss(self) -> float:
        """Accuracy that was lost, on the target or on what was known: the larger one."""
        return max(self.before[key] - self.after[key] for key in ("target", "known"))

    @property
    def harmful(self) -> bool:
        """Whether it lost more than it may."""
        return self.loss > HARM

    @property
    def works(self) -> bool:
        """Whether nothing was made to fail, and nothing was lost."""
        return not self.harmful and self.setting.kind in WORKING

    @property
    def changed(self) -> bool:
        """Whether the target was."""
        return self.setting.shift != Setting.shift

    @property
    def pair(self) -> Pair:
        """By which settings are divided."""
        return self.setting.family, self.setting.source, self.setting.target

    @property
    def evidence(self) -> Mapping[str, float]:
        """What was seen."""
        return {"drawn": 1.0, **self.verdict.evidence}

    def point(self) -> Point:
        """The adapted model and its accuracy on the target."""
        return Point(self.pair, self.evidence, self.after["target"], CHANGED if self.changed else 1.0)


def read(out: Path) -> tuple[list[Done], list[Setting], list[Point]]:
    """All finished runs, those that were refused before training, and what source models made of (changed) domains.

    There are none of a source model that did not learn.
    """
    done, refused, looks = [], [], {}
    for line in itertools.chain(*map(lines_of, sorted(out.glob("runs*.jsonl")))):
        setting = Setting(*(line[field.name] for field in fields(Setting)))
        if "verdict" in line and line["verdict"]["evidence"]:
            done.append(Done(setting, line["before"], line["after"], cosda.Verdict.from_json(line["verdict"])))
        else:
            refused.append(setting)
    for line in itertools.chain(*map(lines_of, sorted(out.glob("shifts*.jsonl")))):
        pair = line["family"], line["source"], line["target"]
        weight = 1.0 if line["shift"] == Setting.shift else CHANGED
        looks[line["name"]] = Point(pair, line["evidence"], line["truth"], weight)
    return done, refused, list(looks.values())


def linear(points: Sequence[Point], names: tuple[str, ...]) -> Regression:
    """Ridge regression of the log-odds of an accuracy, with the spread of nine in ten errors across pairs.

    The spread is that of domains as they are.
    """

    def fit(some: Sequence[Point]) -> Regression:
        x = np.array([[scaled(name, point.evidence[name]) for name in names] for point in some])
        y, weight = np.array([scaled("", point.truth) for point in some]), np.array([point.weight for point in some])
        middle, scale = np.average(x, axis=0, weights=weight), x.std(axis=0) + 1e-9
        found = Ridge(alpha=PENALTY * weight.sum() / 10).fit((x - middle) / scale, y, sample_weight=weight)
        return unstandardised(names, found.coef_, float(found.intercept_), middle, scale)

    errors = []
    for pair in sorted({point.pair for point in points}):  # the truth of a pair of domains that was not fitted
        others = fit([point for point in points if point.pair != pair])
        own = [point for point in points if point.pair == pair and point.weight == 1 and pair[1] != pair[2]]
        errors += [abs(others(point.evidence) - scaled("", point.truth)) for point in own]
    return replace(fit(points), spread=float(np.quantile(errors, 0.9)))


def unstandardised(
    names: tuple[str, ...], weights: np.ndarray, bias: float, middle: np.ndarray, scale: np.ndarray
) -> Regression:
    """A regression of numbers as they are, from one of standardised ones."""
    weights = weights / scale
    return Regression(dict(zip(names, map(float, weights), strict=True)), float(bias - weights @ middle))


Risk = tuple[Regression, Trees]


def risk_of(runs: Sequence[Done]) -> Risk:
    """A logistic regression, and gradient boosting with trees of two questions; together the log-odds of harm."""
    truth = [run.harmful for run in runs]
    x = np.array([[scaled(name, run.evidence[name]) for name in RISK] for run in runs])
    middle, scale = x.mean(axis=0), x.std(axis=0) + 1e-9
    found = LogisticRegression(C=STRENGTH, max_iter=2000).fit((x - middle) / scale, truth)
    share = 1 - TREE_SHARE
    added = unstandardised(RISK, share * found.coef_[0], share * float(found.intercept_[0]), middle, scale)

    x = np.array([[run.evidence[name] for name in RISK] for run in runs])
    boosted = GradientBoostingClassifier(
        n_estimators=TREES, max_depth=2, learning_rate=0.1, subsample=0.7, min_samples_leaf=5, random_state=0
    ).fit(x, truth)
    trees = []
    for step in boosted.estimators_[:, 0]:
        tree = step.tree_
        nodes = tree.feature, tree.threshold, tree.children_left, tree.children_right, tree.value[:, 0, 0]
        trees.append(
            tuple(
                (
                    RISK[feature] if below >= 0 else "",
                    float(threshold),
                    int(below),
                    int(above),
                    TREE_SHARE * 0.1 * float(value),
                )
                for feature, threshold, below, above, value in zip(*nodes, strict=True)
            )
        )
    harmful = float(np.mean(truth))
    return added, Trees(TREE_SHARE * math.log(harmful / (1 - harmful)), tuple(trees))


def fit(runs: Sequence[Done], looks: Sequence[Point]) -> Fitted:
    """All that the package needs, from some runs and looks."""
    own = [run for run in runs if run.setting.kind in OWN_IMAGES]
    before = linear(looks, BEFORE)
    after = linear([run.point() for run in own], AFTER)
    clear = [run for run in runs if run.harmful or run.setting.kind in WORKING]
    risks, harmful = np.empty(len(clear)), np.array([run.harmful for run in clear])
    for pair in {run.pair for run in clear}:  # by what saw nothing of the run's pair of domains
        added, trees = risk_of([run for run in clear if run.pair != pair])
        for place, run in enumerate(clear):
            if run.pair == pair:
                risks[place] = unscaled(added(run.evidence) + trees(run.evidence))
    reject = float(np.quantile(risks[~harmful], 1 - FALSE_ALARMS))
    accept = min(reject, float(np.quantile(risks[harmful], MISSED)))
    ends = {name: np.quantile([r.evidence[name] for r in own if r.works], (0.01, 0.99)).tolist() for name in SENTENCES}
    usual = {
        name: (-math.inf, high) if name in ("distance", "moved") else (low, math.inf)
        for name, (low, high) in ends.items()
    }
    return Fitted(before, after, *risk_of(clear), accept=accept, reject=reject, usual=usual)


def judged(rules: Fitted, run: Done) -> str:
    """The verdict that the rules give to a run."""
    if run.verdict.decided_by == "guard":
        return "rejected"
    return rules.word(rules.risk(run.evidence), run.evidence)


def row(title: str, rules: Fitted, runs: Sequence[Done]) -> list[str]:
    """One line of the table: harmful runs and good ones by their verdict, and the estimates."""
    cells = [title]
    for some in ([run for run in runs if run.harmful], [run for run in runs if run.works]):
        words = [judged(rules, run) for run in some]
        cells += [str(len(some)), *(f"{100 * words.count(w) / len(words):.1f}" if words else "" for w in WORDS)]
    cells.append(f"{100 * max((run.loss for run in runs if judged(rules, run) == 'accepted'), default=0):.1f}")
    own = [run for run in runs if run.setting.kind in OWN_IMAGES]
    cells += errors([(rules.accuracy(run.evidence, "after"), run.after["target"]) for run in own])
    return cells


def errors(found: Sequence[tuple[cosda.Estimate, float]]) -> list[str]:
    """How far estimates are from the truth on average, and how often their intervals hold it."""
    if not found:
        return ["", ""]
    apart = np.mean([abs(estimate.accuracy - truth) for estimate, truth in found])
    inside = np.mean([estimate.low <= truth <= estimate.high for estimate, truth in found])
    return [f"{100 * apart:.1f}", f"{100 * inside:.0f}"]


def estimates(rules: Fitted, halves: Sequence[Sequence[Point]]) -> list[list[str]]:
    """Of incoming models on domains as they are, and on changed ones."""
    rows = [["estimated before adapting", "looks", "error", "covered"]]
    for half, points in zip(("half on which it was fitted", "other half"), halves, strict=True):
        families = sorted({point.pair[0] for point in points})
        for title, some in (
            (half, [point for point in points if point.weight == 1]),
            *((f"{half}, {name}", [p for p in points if p.weight == 1 and p.pair[0] == name]) for name in families),
            (f"{half}, changed domains", [point for point in points if point.weight < 1]),
        ):
            some = [point for point in some if point.pair[1] != point.pair[2]]
            found = [(rules.accuracy(point.evidence, "before"), point.truth) for point in some]
            rows.append([title, str(len(some)), *errors(found)])
    return rows


def tables(out: Path) -> dict[str, str]:
    """What was found, as Markdown, by the names of the tables."""
    everything, refused, looks = read(out)
    runs = [run for run in everything if not run.changed]
    pairs = sorted({run.pair for run in runs})
    halves = [[run for run in everything if pairs.index(run.pair) % 2 == rest] for rest in (0, 1)]
    # Of a model on its own domain nothing is measured, so all of these are fitted on.
    looked = [
        [each for each in looks if (pairs.index(each.pair) if each.pair in pairs else 0) % 2 == rest] for rest in (0, 1)
    ]
    rules = fit(halves[0], looked[0])
    as_they_are = [[run for run in half if not run.changed] for half in halves]
    other, words = as_they_are[1], ("accepted", "doubtful", "rejected")
    families = sorted({run.setting.family for run in runs})
    rows = [
        ["runs", "harmful", *words, "good", *words, "largest accepted loss", "error after", "covered"],
        row("half on which it was fitted", rules, as_they_are[0]),
        row("other half", rules, other),
        *(row(f"other half, {name}", rules, [run for run in other if run.setting.family == name]) for name in families),
        *(row(f"other half, {name}", rules, [run for run in other if run.setting.carry == name]) for name in RULES),
    ]
    for kind in dict.fromkeys((*WORKING, *FAILURES)):
        some = [run for run in other if run.setting.kind == kind]
        if any(run.harmful or run.works for run in some):
            rows.append(row(f"other half, {kind}", rules, some))
    rows.append(row("other half, changed targets", rules, [run for run in halves[1] if run.changed]))
    counted = [
        ["", "runs", "refused before training", "stopped by the guard"],
        *(
            [
                title,
                str(len(some) + len(gone)),
                str(len(gone)),
                str(sum(run.verdict.decided_by == "guard" for run in some)),
            ]
            for title, some, gone in (
                ("good", [r for r in runs if r.setting.kind in WORKING], [s for s in refused if s.kind in WORKING]),
                (
                    "made to fail",
                    [r for r in runs if r.setting.kind not in WORKING],
                    [s for s in refused if s.kind not in WORKING],
                ),
                ("good, with a changed target", [run for run in everything if run.changed], []),
            )
        ),
    ]
    return {
        "verdict counts": markdown(counted),
        "verdict": markdown(rows),
        "verdict estimates": markdown(estimates(rules, looked)),
    }


def main() -> None:
    """The command line of this study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    runs = steps.add_parser("run")
    runs.add_argument("out", type=Path)
    runs.add_argument("digits", type=Path, help="an .npz file with MNIST and USPS")
    runs.add_argument("office", type=Path, help="the folder of Office-31")
    runs.add_argument("--only", default="", help="one family: digits, 'three digits' or features")
    fits = steps.add_parser("fit")
    fits.add_argument("out", type=Path)
    fits.add_argument("--into", type=Path, help="a Markdown file with the lines <!-- verdict --> and so on")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.step == "run":
        return run(asked.out, asked.digits, asked.office, asked.only)
    made = tables(asked.out)
    if asked.into is None:
        print("\n\n".join(made.values()))
    else:
        asked.into.write_text(put_into(asked.into.read_text(), made))
    done, _, looks = read(asked.out)
    text = json.dumps(fit(done, looks).as_json())
    resources.files("cosda").joinpath("judge/fitted.json").write_text(text + "\n")  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
