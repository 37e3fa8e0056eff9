"""What a program does with cosda, in a few calls; the command line does the same."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cosda import metrics
from cosda.config.resolve import Plan, resolve
from cosda.data.benchmarks import load as load_benchmark
from cosda.data.cache import Packed
from cosda.data.domain import Benchmark, Domain, Files, everything
from cosda.data.inputs import load_domain
from cosda.data.loader import Loader, open_loader
from cosda.distributed import collectives, env
from cosda.errors import CosdaError
from cosda.models.artifact import Model, load, load_like
from cosda.models.network import place
from cosda.records.run import Run
from cosda.run.chain import carried_path, execute
from cosda.run.environment import open_arithmetic
from cosda.run.evaluate import measure, probabilities
from cosda.run.prepare import EVALUATION_BATCH, Machine, fingerprint, prepare, readable, weights_key
from cosda.run.source import new_model, source_model
from cosda.watch import Watcher


@dataclass(frozen=True)
class Result:
    """An adapted model and the run that made it."""

    model: Model
    run: Run


@dataclass(frozen=True)
class Evaluation:
    """Counts per class, and what follows from them."""

    domain: str
    classes: tuple[str, ...]
    images: list[int]
    correct: list[int]

    @property
    def top1(self) -> float:
        """Share of images classified correctly."""
        return metrics.top1(self.correct, self.images)

    @property
    def per_class(self) -> float:
        """Mean of the accuracies of the classes."""
        return metrics.per_class(self.correct, self.images)

    def as_json(self) -> dict[str, Any]:
        """All counts and both accuracies."""
        classes = [
            {"class": name, "images": images, "correct": correct}
            for name, images, correct in zip(self.classes, self.images, self.correct, strict=True)
        ]
        return {"domain": self.domain, "top1": self.top1, "per_class": self.per_class, "classes": classes}


@dataclass(frozen=True)
class Prediction:
    """The class of one image."""

    image: str
    label: str
    probability: float


def adapt(
    model: Model | str | Path,
    data: str | Path | Domain,
    method: str = "cosda",
    *,
    domain: str | None = None,
    changes: Iterable[str] = (),
    variant: str | None = None,
    ablation: str | None = None,
    seed: int = 0,
    select: str = "last",
    out: str | Path | None = None,
    machine: Machine | None = None,
    watcher: Watcher | None = None,
) -> Result:
    """Adapt a trained model to one new domain of unlabelled images; the given model is left as it is.

    ``changes`` are settings as on the command line, for example ``["epochs=5", "temperature=0.1"]``. With ``out`` the
    run folder is kept below that path, and a call that was interrupted goes on; without it, it is temporary. ``domain``
    is another name for the domain than that of its data. A model with masks needs it, since this name chooses the mask;
    a name that is new to the model gets a new mask. ``select`` is the rule that chooses the epoch.
    """
    if select == "oracle":
        raise CosdaError(
            "adaptation reads no labels, so it cannot be selected by the oracle. Take 'last' or a validator."
        )
    model = model if isinstance(model, Model) else load(model)
    if domain is None:
        model.network.for_domain(None)  # an error for a model with masks
    target = data if isinstance(data, Domain) else load_domain(data, model.classes)
    name = domain or target.name
    target = replace(target, name="target" if name == "source" else name)
    plan = resolve(
        benchmark="own",
        fingerprint=fingerprint([target], machine.cache if machine else None),
        protocol="transductive",
        headline="top1",
        domains=("source", target.name),
        classes=model.classes,
        method=method,
        variant=variant,
        ablation=ablation,
        seed=seed,
        select=select,
        **_given(model),
        changes=changes,
    )

    def do(folder: Path) -> Result:
        run = execute(plan, {target.name: target}, folder, machine, watcher, model)
        return Result(load_like(carried_path(run), model), run)

    if out is not None:
        return do(Path(out))
    if env.place().world > 1:
        raise CosdaError("under torchrun, give out=FOLDER: all processes must work on one run folder.")
    with tempfile.TemporaryDirectory(prefix="cosda-") as folder:
        return do(Path(folder))


def run_chain(
    data: str | Path | Benchmark,
    method: str = "cosda",
    *,
    domains: Sequence[str] | None = None,
    model: Model | str | Path | None = None,
    changes: Iterable[str] = (),
    variant: str | None = None,
    ablation: str | None = None,
    seed: int = 0,
    select: str = "last",
    out: str | Path = "runs",
    machine: Machine | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """Run a chain of domains of a benchmark: source model, then each target; everything measured and recorded."""
    benchmark = data if isinstance(data, Benchmark) else load_benchmark(data)
    start = model if isinstance(model, Model) or model is None else load(model)
    cache = machine.cache if machine else None
    plan = make_plan(benchmark, method, domains, start, changes, variant, ablation, seed, cache, select)
    chosen = {name: benchmark[name] for name in plan.domains}
    return execute(plan, chosen, Path(out), machine, watcher, start)


def make_plan(
    benchmark: Benchmark,
    method: str,
    domains: Sequence[str] | None = None,
    model: Model | None = None,
    changes: Iterable[str] = (),
    variant: str | None = None,
    ablation: str | None = None,
    seed: int = 0,
    cache: Path | None = None,
    select: str = "last",
) -> Plan:
    """Resolve all settings of a chain; the first domain is the source, and the default is all in order."""
    chain = benchmark.ordered(tuple(domains) if domains else tuple(benchmark.domains))
    if len(chain) < 2:
        raise CosdaError(
            f"a run needs a source and at least one target; {benchmark.name} with "
            f"--domains {','.join(d.name for d in chain)} has one domain."
        )
    if model is not None and model.classes != benchmark.classes:
        raise CosdaError(
            f"the model knows the classes {', '.join(model.classes)}; {benchmark.name} has "
            f"{', '.join(benchmark.classes)}. Both lists must be the same, in the same order."
        )
    return resolve(
        benchmark=benchmark.name,
        fingerprint=fingerprint(list(chain), cache),
        source_fingerprint=fingerprint([chain[0]], cache),
        protocol=benchmark.protocol,
        headline=benchmark.headline,
        domains=tuple(domain.name for domain in chain),
        classes=benchmark.classes,
        input_width=chain[0].width,
        method=method,
        variant=variant,
        ablation=ablation,
        seed=seed,
        select=select,
        **_given(model),
        changes=changes,
    )


def train_source(
    data: str | Path | Benchmark,
    domain: str,
    *,
    changes: Iterable[str] = (),
    seed: int = 0,
    out: str | Path = "runs",
    machine: Machine | None = None,
    watcher: Watcher | None = None,
) -> Model:
    """Train a source model on one labelled domain, or load it where that has been done before."""
    benchmark = data if isinstance(data, Benchmark) else load_benchmark(data)
    machine = machine or Machine()
    chosen = benchmark[domain]
    images = fingerprint([chosen], machine.cache)
    plan = resolve(
        benchmark=benchmark.name,
        fingerprint=images,
        source_fingerprint=images,
        protocol=benchmark.protocol,
        headline=benchmark.headline,
        domains=(domain,),
        classes=benchmark.classes,
        input_width=chosen.width,
        method="source",
        seed=seed,
        changes=changes,
    )
    device, model = machine.open(), new_model(plan)
    watcher = watcher if watcher and collectives.is_main() else Watcher()
    precision = plan.section("network").precision
    model.network.arithmetic = open_arithmetic(precision, machine.compile, device, watcher)
    ready = prepare(chosen, plan, model, device, machine, watcher).domain
    return source_model(plan, ready, model, Path(out), device, watcher, machine.log)


def evaluate(
    model: Model | str | Path,
    data: str | Path | Domain,
    *,
    domain: str | None = None,
    machine: Machine | None = None,
    watcher: Watcher | None = None,
) -> Evaluation:
    """Measure a model on the test images of one labelled domain; one with masks must be told its name."""
    model = model if isinstance(model, Model) else load(model)
    network = model.network.for_domain(domain)
    measured = data if isinstance(data, Domain) else load_domain(data, model.classes)
    if measured.labels is None:
        raise CosdaError(
            f"{measured.name} has no labels to compare with: images must lie in one folder per class, "
            "named as the model's classes. 'cosda predict' needs no labels."
        )
    loader, packed = _open(model, measured, machine, watcher)
    assert packed.domain.labels is not None
    labels = packed.domain.labels[packed.domain.test]
    images, correct = measure(network, loader, labels, len(model.classes))
    return Evaluation(domain or measured.name, model.classes, images, correct)


def predict(
    model: Model | str | Path,
    data: str | Path | Domain,
    *,
    domain: str | None = None,
    machine: Machine | None = None,
    watcher: Watcher | None = None,
) -> list[Prediction]:
    """The class of every image, with its probability; only a model with masks must be told the domain."""
    model = model if isinstance(model, Model) else load(model)
    network = model.network.for_domain(domain)
    images = data if isinstance(data, Domain) else load_domain(data)
    images = replace(images.without_labels(), test=everything(len(images)))
    loader, packed = _open(model, images, machine, watcher)
    scores = probabilities(network, loader)
    skipped = {name for name, _ in packed.skipped}
    files = images.items.names if isinstance(images.items, Files) else map(str, range(len(images)))
    names = [name for name in files if name not in skipped]
    best = scores.argmax(axis=1)
    return [
        Prediction(name, model.classes[label], float(row[label]))
        for name, label, row in zip(names, best, scores, strict=True)
    ]


def write_predictions(predictions: Sequence[Prediction], format: str) -> str:
    """Predictions as CSV with a header, or as a JSON list."""
    if format == "json":
        return json.dumps([asdict(one) for one in predictions], indent=1, ensure_ascii=False) + "\n"
    if format != "csv":
        raise CosdaError(f"predictions are written as csv or json, not as '{format}'.")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("image", "class", "probability"))
    writer.writerows((one.image, one.label, f"{one.probability:.6f}") for one in predictions)
    return text.getvalue()


def _open(model: Model, domain: Domain, machine: Machine | None, watcher: Watcher | None) -> tuple[Loader, Packed]:
    """A loader of the domain's test split for a model, which is put on the device."""
    machine = machine or Machine()
    device = machine.open()
    place(model.network, device)
    packed = readable(domain, model.preprocessing.size, machine, watcher or Watcher())
    return open_loader(packed.domain, "test", model.preprocessing, device, EVALUATION_BATCH), packed


def _given(model: Model | None) -> dict[str, Any]:
    """What a given model has settled: its network and its preprocessing."""
    if model is None:
        return {}
    network = {"encoder": model.architecture.encoder, "bottleneck": model.architecture.bottleneck}
    preprocessing = model.preprocessing
    data = (
        {"size": preprocessing.size, "profile": preprocessing.profile, "flip": preprocessing.flip}
        if preprocessing.of_images
        else {}
    )
    return {"model": weights_key(model.network), "given": {"network": network, "data": data}}
