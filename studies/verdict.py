"""How good the verdict is: adaptations that work and adaptations that are made to fail, with their truth.

    python studies/verdict.py run out/studies/verdict DIGITS.npz OFFICE31     # hours; goes on where it was stopped
    python studies/verdict.py fit out/studies/verdict                         # writes fitted.json, prints the tables

`run` adapts source models of the embedded digits, of three sets of digits, and of Office-31 (features of a frozen
EfficientNet-Lite0) to each other's domains, measures target and source on labelled test images before and after, and
keeps that beside the verdict's evidence. A run is harmful if it lost more than two points on either. `fit` fits the
regressions of `cosda.judge` and the limits of the risk on half of the settings (pairs of domains), and measures both
halves. The file of the package comes from all settings.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import Ridge

import cosda
from cosda.data import digits
from cosda.judge import verdict as judging
from cosda.judge.evidence import ESTIMATORS
from cosda.judge.fitted import SENTENCES, Fitted, Regression, Trees, scaled, unscaled
from cosda.records.verdict import WORDS

IMAGES = 300  # of a target; one site's first week
EPOCHS = 4
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

    @property
    def name(self) -> str:
        """Of its line."""
        return "/".join((self.family, self.source, self.target, self.method, self.carry, self.kind))


def settings(families: Mapping[str, tuple[str, ...]]) -> Iterator[Setting]:
    """Good ones: every pair, method and carry rule. Failures: every pair with every kind, methods and rules in turn."""
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
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.permutation(domain.train)[:IMAGES])
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


def run(out: Path, digits_file: Path, office: Path, only: str = "") -> None:
    """All settings whose line is not there yet, or those of one family."""
    out.mkdir(parents=True, exist_ok=True)
    made_by = {
        "digits": digits.load,
        "three digits": lambda: three_digits(digits_file),
        "features": lambda: features(office, out),
    }
    families = {name: make() for name, make in made_by.items() if not only or name == only}
    lines = out / f"runs{only and '-' + only.replace(' ', '-')}.jsonl"
    done = {json.loads(line)["name"] for line in lines.read_text().splitlines()} if lines.exists() else set()
    machine = cosda.Machine(threads=1)
    small = {"network.encoder": "small", "network.bottleneck": 64, "data.size": 32, "data.flip": False}
    small |= {"source.epochs": 15, "source.lr": 0.2, "source.lr_end": 0.004, "source.encoder_rate": 1.0}
    heads: dict[str, Any] = {"source.epochs": 20, "source.lr": 1e-2, "source.lr_end": 2e-4}

    @cache
    def source(family: str, name: str) -> cosda.Model:
        wanted = heads if family == "features" else small
        given = {**wanted, "source.holdout": 0.0}
        return cosda.train_source(families[family], name, out=out / "sources", machine=machine, settings=given).model

    def others(family: str) -> Callable[[int], np.ndarray]:
        if family == "features":
            return lambda count: np.load(out / "features.npz")["others"][:count]
        photos = cosda.load_benchmark(office)["amazon"]
        from cosda.run.prepare import readable

        packed = readable(photos, 28, machine, cosda.Watcher()).domain
        return lambda count: np.asarray(packed.items[np.arange(0, 5 * count, 5)])[:, :32, :32]

    @cache
    def accuracy_before(family: str, name: str, domain: str) -> float:
        return cosda.evaluate(source(family, name), families[family][domain], machine=machine).top1

    images = {family: others(family) for family in families}
    made: dict[Any, Any] = {}
    original = judging.stand_ins

    def remembered(network: Any, like: torch.Tensor, seed: int = 0, **options: Any) -> Any:
        """The same network and inputs give the same stand-ins, which are made once."""
        from cosda.models.artifact import weights_key

        key = weights_key(network), float(like.double().sum())
        if key not in made:
            made[key] = original(network, like, seed, **options)
        return made[key]

    judging.stand_ins = remembered  # type: ignore[attr-defined]
    for setting in settings({family: tuple(benchmark.domains) for family, benchmark in families.items()}):
        if setting.name in done:
            continue
        model = source(setting.family, setting.source)
        target = families[setting.family][setting.target]
        given = given_images(setting, target, images[setting.family])
        rates = (2e-3, 1e-3) if setting.family == "features" else (1e-2, 5e-3)
        line: dict[str, Any] = {"name": setting.name, **vars(setting)}
        measured = {"known": families[setting.family][setting.source], "target": target}
        line["before"] = {
            key: accuracy_before(setting.family, setting.source, domain.name) for key, domain in measured.items()
        }
        try:
            result = cosda.adapt(
                model, given, setting.method, machine=machine, carry=setting.carry, settings=changes(setting, rates)
            )
            assert result.verdict is not None
            line["after"] = {
                key: cosda.evaluate(result.model, domain, machine=machine).top1 for key, domain in measured.items()
            }
            line["verdict"] = result.verdict.as_json()
        except cosda.CosdaError as error:  # refused before or during training: nothing is written
            line["refused"] = str(error)
        with lines.open("a") as file:
            file.write(json.dumps(line) + "\n")


LEARNT = 0.5  # accuracy on its own domain from which a source model is one
HARM = 0.02  # points lost from which a run is harmful
OWN_IMAGES = ("good", "rate /10", "long", "rate x10", "rate x100", "rate x1000", "momentum 0")  # of the target itself
WORKING = ("good", "rate /10", "long")  # nothing was made to fail
BEFORE = (*(f"{name}, before" for name in ESTIMATORS), "diversity before", "distance")
AFTER = (*BEFORE, *(f"{name}, after" for name in ESTIMATORS), "agreement", "agreement where sure", "diversity")
RISK = (*AFTER, "kept", "routed", "images per class")
PENALTY = 1.0  # of both regressions, on standardised numbers; chosen beforehand
FALSE_ALARMS, MISSED = 0.02, 0.05  # what the limits aim at: good runs rejected, and harmful ones accepted


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
    def pair(self) -> tuple[str, str, str]:
        """By which settings are divided."""
        return self.setting.family, self.setting.source, self.setting.target


def read(out: Path) -> tuple[list[Done], list[str]]:
    """All finished runs, and the kinds of those that were refused before training; none of an unlearnt source."""
    done, refused = [], []
    for path in sorted(out.glob("runs*.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            setting = Setting(*(line[field.name] for field in fields(Setting)))
            if line["before"]["known"] < LEARNT:
                continue
            if "verdict" in line and line["verdict"]["evidence"]:
                verdict = cosda.Verdict.from_json(line["verdict"])
                done.append(Done(setting, line["before"], line["after"], verdict))
            else:
                refused.append(setting.kind)
    return done, refused


def matrix(runs: list[Done], names: tuple[str, ...]) -> np.ndarray:
    """The evidence of runs, as the regressions take it."""
    return np.array([[scaled(name, run.verdict.evidence[name]) for name in names] for run in runs])


def linear(runs: list[Done], names: tuple[str, ...], truth: Callable[[Done], float]) -> Regression:
    """Ridge regression of the log-odds of an accuracy, with the spread of nine in ten errors across pairs."""

    def fit(some: list[Done]) -> Regression:
        x, y = matrix(some, names), np.array([scaled("", truth(run)) for run in some])
        middle, scale = x.mean(axis=0), x.std(axis=0) + 1e-9
        found = Ridge(alpha=PENALTY * len(some) / 10).fit((x - middle) / scale, y)
        weights = found.coef_ / scale
        return Regression(
            dict(zip(names, map(float, weights), strict=True)), float(found.intercept_ - weights @ middle)
        )

    errors = []
    for pair in {run.pair for run in runs}:  # the truth of a pair of domains that was not fitted
        others = fit([run for run in runs if run.pair != pair])
        errors += [abs(others(run.verdict.evidence) - scaled("", truth(run))) for run in runs if run.pair == pair]
    return replace(fit(runs), spread=float(np.quantile(errors, 0.9)))


def boosted(runs: list[Done], truth: list[bool]) -> Trees:
    """Gradient boosting with trees of two questions."""
    x = np.array([[run.verdict.evidence[name] for name in RISK] for run in runs])
    found = GradientBoostingClassifier(
        n_estimators=80, max_depth=2, learning_rate=0.1, subsample=0.7, min_samples_leaf=5, random_state=0
    ).fit(x, truth)
    trees = []
    for step in found.estimators_[:, 0]:
        tree = step.tree_
        nodes = tree.feature, tree.threshold, tree.children_left, tree.children_right, tree.value[:, 0, 0]
        trees.append(
            tuple(
                (RISK[feature] if below >= 0 else "", float(threshold), int(below), int(above), 0.1 * float(value))
                for feature, threshold, below, above, value in zip(*nodes, strict=True)
            )
        )
    share = float(np.mean(truth))
    return Trees(math.log(share / (1 - share)), tuple(trees))


def fit(runs: list[Done]) -> Fitted:
    """All that the package needs, from some runs."""
    own = [run for run in runs if run.setting.kind in OWN_IMAGES]
    first = list({run.pair: run for run in own}.values())  # the incoming model is the same in all runs of a pair
    before = linear(first, BEFORE, lambda run: run.before["target"])
    after = linear(own, AFTER, lambda run: run.after["target"])
    clear = [run for run in runs if run.loss > HARM or run.setting.kind in WORKING]
    harm = boosted(clear, [run.loss > HARM for run in clear])
    runs, harmful = clear, np.array([run.loss > HARM for run in clear])
    risks = np.empty(len(runs))  # by trees that saw nothing of the run's pair of domains
    for pair in {run.pair for run in runs}:
        own_pair = np.array([run.pair == pair for run in runs])
        others = [run for run in runs if run.pair != pair]
        apart = boosted(others, [run.loss > HARM for run in others])
        risks[own_pair] = [unscaled(apart(run.verdict.evidence)) for run in runs if run.pair == pair]
    reject = float(np.quantile(risks[~harmful], 1 - FALSE_ALARMS))
    accept = min(reject, float(np.quantile(risks[harmful], MISSED)))
    good = [run for run, bad in zip(runs, harmful, strict=True) if not bad and run.setting.kind in OWN_IMAGES]
    usual = {
        name: tuple(np.quantile([run.verdict.evidence[name] for run in good], (0.01, 0.99)).tolist())
        for name in SENTENCES
    }
    usual = {name: (low, high) if name == "distance" else (low, math.inf) for name, (low, high) in usual.items()}
    return Fitted(before, after, harm, accept, reject, usual)


def judged(rules: Fitted, run: Done) -> str:
    """The verdict that the rules give to a run."""
    if run.verdict.decided_by == "guard":
        return "rejected"
    return rules.word(rules.risk(run.verdict.evidence))


def row(title: str, rules: Fitted, runs: list[Done]) -> str:
    """One line of the table: harmful runs and good ones by their verdict, and the estimates."""
    harmful = [run for run in runs if run.loss > HARM]
    good = [run for run in runs if run.loss <= HARM and run.setting.kind in WORKING]
    cells = [title]
    for some in (harmful, good):
        words = [judged(rules, run) for run in some]
        cells += [str(len(some)), *(f"{100 * words.count(w) / max(1, len(words)):.1f}" for w in WORDS)]
    accepted = [run.loss for run in runs if judged(rules, run) == "accepted"]
    cells.append(f"{100 * max(accepted, default=0):.1f}")
    own = [run for run in runs if run.setting.kind in OWN_IMAGES]
    for when in ("before", "after"):
        some = list({run.pair: run for run in own}.values()) if when == "before" else own
        pairs = [(rules.accuracy(run.verdict.evidence, when), getattr(run, when)["target"]) for run in some]
        error = np.mean([abs(estimate.accuracy - truth) for estimate, truth in pairs])
        inside = np.mean([estimate.low <= truth <= estimate.high for estimate, truth in pairs])
        cells += [f"{100 * error:.1f}", f"{100 * inside:.0f}"]
    return "| " + " | ".join(cells) + " |"


def tables(out: Path) -> str:
    """What was found, as Markdown."""
    runs, refused = read(out)
    pairs = sorted({run.pair for run in runs})
    halves = [[run for run in runs if pairs.index(run.pair) % 2 == rest] for rest in (0, 1)]
    rules = fit(halves[0])
    head = "accepted | doubtful | rejected"
    lines = [
        f"{len(runs)} runs were judged; {len(refused)} more were refused before training "
        f"({', '.join(sorted(set(refused)))}).",
        "",
        f"| runs | harmful | {head} | good | {head} | largest accepted loss "
        "| error before | covered | error after | covered |",
        "|---|" + "--:|" * 13,
        row("half on which it was fitted", rules, halves[0]),
        row("other half", rules, halves[1]),
        *(
            row(f"other half, {name}", rules, some)
            for name in sorted({run.setting.family for run in runs})
            if (some := [run for run in halves[1] if run.setting.family == name])
        ),
        *(
            row(f"other half, {kind}", rules, some)
            for kind in dict.fromkeys(run.setting.kind for run in runs)
            if (some := [run for run in halves[1] if run.setting.kind == kind]) and kind in OWN_IMAGES
        ),
    ]
    return "\n".join(lines)


def main(words: list[str]) -> None:
    """The command line of this study."""
    match words:
        case ["run", out, digits_file, office, *only]:
            run(Path(out), Path(digits_file), Path(office), *only)
        case ["fit", out]:
            print(tables(Path(out)))
            text = json.dumps(fit(read(Path(out))[0]).as_json())
            resources.files("cosda").joinpath("judge/fitted.json").write_text(text + "\n")  # type: ignore[attr-defined]
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
