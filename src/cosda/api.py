"""What a program does with cosda, in a few calls; the command line does the same."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from cosda import metrics
from cosda.config.plan import Plan
from cosda.config.request import Data, Options, Request
from cosda.config.resolve import resolve
from cosda.data.benchmarks import BenchmarkLike
from cosda.data.benchmarks import load as load_benchmark
from cosda.data.cache import Packed
from cosda.data.domain import Benchmark, Domain, everything
from cosda.data.inputs import DataLike, load_domain
from cosda.data.loader import Loader, open_loader
from cosda.data.pictures import picture
from cosda.data.readers import listed
from cosda.deploy import export as deploy
from cosda.deploy.export import Exported
from cosda.distributed import env
from cosda.errors import CosdaError
from cosda.files import check_folder
from cosda.judge.check import compare
from cosda.judge.monitor import LEAST_ALPHA, Drift, watch
from cosda.judge.verdict import Judging, record_check
from cosda.models.artifact import Model, load, load_like
from cosda.models.calibration import calibrate
from cosda.models.experts import DomainBank
from cosda.models.network import Network, to_device
from cosda.records.images import ComparedImage
from cosda.records.run import Run
from cosda.records.verdict import Verdict, read_verdict
from cosda.report.diff.changes import Diff
from cosda.run.answers import answering, answers, routes
from cosda.run.chain import carried_path, execute
from cosda.run.evaluate import EVALUATION_BATCH, confusion, counts, outputs, predicted_classes, told
from cosda.run.machine import Machine
from cosda.run.predictions import Prediction
from cosda.run.prepare import check_input, main_watcher, prepare, readable
from cosda.run.profile import Look
from cosda.run.source import is_trained, source_model, source_run
from cosda.shown import Facts, Shown, percent
from cosda.watch import Watcher

MOST_CLASSES = 10  # of an evaluation are shown, the worst first


@dataclass(frozen=True)
class Evaluation(Shown):
    """Counts per class, and what follows from them."""

    domain: str
    classes: tuple[str, ...]
    images: list[int]
    correct: list[int]
    skipped: Mapping[str, str] = field(default_factory=dict)  # images that cannot be read, and why

    @property
    def top1(self) -> float:
        """Share of images classified correctly."""
        return metrics.top1(self.correct, self.images)

    @property
    def per_class(self) -> float:
        """Mean of the accuracies of the classes."""
        return metrics.per_class(self.correct, self.images)

    def _facts(self) -> Facts:
        classes = zip(self.classes, self.images, self.correct, strict=True)
        worst = sorted((one for one in classes if one[1]), key=lambda one: one[2] / one[1])
        rows = [(name, str(images), str(correct)) for name, images, correct in worst[:MOST_CLASSES]]
        left_out = [f"{len(self.skipped)} images could not be read"] if self.skipped else []
        more = [f"and {len(worst) - MOST_CLASSES} better classes"] if len(worst) > MOST_CLASSES else []
        title = f"{self.domain}: {percent(self.top1)} of {sum(self.images)} images correct"
        return Facts(title, rows, ("class", "images", "correct"), [*more, *left_out])

    def as_json(self) -> dict[str, Any]:
        """All counts and both accuracies."""
        classes = [
            {"class": name, "images": images, "correct": correct}
            for name, images, correct in zip(self.classes, self.images, self.correct, strict=True)
        ]
        facts = {"domain": self.domain, "top1": self.top1, "per_class": self.per_class, "classes": classes}
        return facts | {"skipped": dict(self.skipped)}


@dataclass(frozen=True)
class Check:
    """A model measured on labelled images before and after adaptation, because somebody asked for it."""

    before: Evaluation
    after: Evaluation


@dataclass(frozen=True)
class Result(Shown):
    """A model and the run that made it: an adaptation with its verdict, or the training of a source model."""

    model: Model
    run: Run
    check: Check | None = field(default=None, compare=False)
    verdict: Verdict | None = field(default=None, compare=False)

    def _facts(self) -> Facts:
        return (self.verdict or self.model)._facts()


def adapt(
    model: Model | str | Path,
    data: DataLike,
    method: str = "cosda",
    *,
    domain: str | None = None,
    check: DataLike | None = None,
    out: str | Path | None = None,
    machine: Machine | None = None,
    watcher: Watcher | None = None,
    **options: Unpack[Options],
) -> Result:
    """Adapt a trained model to one new domain of unlabelled images; the given model is left as it is.

    Args:
        model: a model, or its folder.
        data: the new images. Folder names and labels mean nothing here and are not read.
        method: its name; ``cosda.METHODS`` has all.
        domain: another name for the domain than that of its data. A model with masks needs it, since this name chooses
            the mask; a name that is new to the model gets a new mask. With ``carry="bank"`` it names the expert; one
            that is there is adapted once more.
        check: labelled images on which the model is measured before and after. They decide the verdict, and nothing of
            the training.
        out: where the run folder is kept, so that a call that was interrupted goes on; without it, it is temporary.
        machine: device, threads, cache.
        watcher: is told what happens.
        options: settings by name, see `cosda.Options`.

    Raises:
        CosdaError: wrong input or an impossible request.

    Example:
        >>> result = cosda.adapt("source-model", "photos/new-site", method="aad", carry="bank", epochs=5)
        >>> if result.verdict.verdict != "rejected":
        ...     result.model.save("adapted-model")
    """
    request = Request.of(method, model=_model(model), **options)
    return adapt_request(request, data, domain, check, out, machine, watcher)


def adapt_request(
    request: Request,
    data: DataLike,
    domain: str | None = None,
    check: DataLike | None = None,
    out: str | Path | None = None,
    machine: Machine | None = None,
    watcher: Watcher | None = None,
) -> Result:
    """`adapt` for a request that is made already."""
    model, machine = request.model, machine or Machine()
    assert model is not None
    if out is not None:
        check_folder(out)
    if request.select == "oracle":
        raise CosdaError(
            "adaptation reads no labels, so it cannot be selected by the oracle. Take 'last' or a validator."
        )
    if domain is None:
        model.network.for_domain(None)  # an error for a model with masks
    target = load_domain(data, labels=False, follow_links=machine.follow_links)
    name = domain or target.name
    target = replace(target, name="target" if name == "source" else name)
    chain = Benchmark("own", {target.name: target}, model.classes)
    facts = replace(Data.of(chain, cache=machine.cache_folder), domains=("source", target.name))
    plan = resolve(replace(facts, source_fingerprint="", input_width=None), request)
    known = domain if model.network.needs_domain else None  # a bank is measured as it will be used
    # Without a mask for the new domain, a model is used with that of the domain that it was trained on.
    as_used = known if known is None or known in model.network.domains else model.network.domains[0]
    before = _answered(model, check, as_used, machine, watcher) if check is not None else None
    with _folder(out) as folder:
        run = execute(plan, {target.name: target}, folder, machine, watcher, model, Judging(target))
        adapted = replace(load_like(carried_path(run), model), origin=None)  # it lies nowhere yet
        checked = None
        if before is not None and check is not None:
            after = _answered(adapted, check, known, machine, watcher)
            checked = Check(before.evaluation, after.evaluation)
            record_check(run.path, compare(before.correct, after.correct))
        verdict = read_verdict(run.path)
    if verdict is not None:
        adapted.lineage[-1] |= {"from": str(model.origin) if model.origin else None, "verdict": verdict.short}
    return Result(adapted, run, checked, verdict)


@contextmanager
def _folder(out: str | Path | None) -> Iterator[Path]:
    """The folder of run folders; one that vanishes where none is given."""
    if out is not None:
        yield Path(out)
        return
    if env.place().world > 1:
        raise CosdaError("under torchrun, give out=FOLDER: all processes must work on one run folder.")
    with tempfile.TemporaryDirectory(prefix="cosda-") as folder:
        yield Path(folder)


def run_chain(
    data: BenchmarkLike,
    method: str = "cosda",
    *,
    domains: Sequence[str] | None = None,
    model: Model | str | Path | None = None,
    out: str | Path = "runs",
    machine: Machine | None = None,
    watcher: Watcher | None = None,
    **options: Unpack[Options],
) -> Run:
    """Run a chain of domains of a benchmark: source model, then each target; everything measured and recorded.

    Args:
        data: a benchmark, its name or folder, or whatever else `load_benchmark` reads.
        method: its name; ``cosda.METHODS`` has all.
        domains: the chain, source first; all domains in order where this is left out.
        model: a trained model to start from instead of training one on the source.
        out: where run folders lie. A run that was interrupted goes on; a finished one is only read.
        machine: device, threads, cache.
        watcher: is told what happens.
        options: settings by name, see `cosda.Options`.

    Raises:
        CosdaError: wrong input or an impossible request.

    Example:
        >>> run = cosda.run_chain("digits", "aad", domains=["print", "hand"], epochs=2)
        >>> run.matrix()
    """
    given = None if model is None else _model(model)
    return run_request(data, Request.of(method, domains, given, **options), out, machine, watcher)


def run_request(
    data: BenchmarkLike,
    request: Request,
    out: str | Path = "runs",
    machine: Machine | None = None,
    watcher: Watcher | None = None,
) -> Run:
    """`run_chain` for a request that is made already."""
    machine = machine or Machine()
    check_folder(out)
    benchmark = _benchmark(data, machine)
    plan = make_plan(benchmark, request, machine.cache_folder)
    chosen = {name: benchmark[name] for name in plan.data.domains}
    return execute(plan, chosen, Path(out), machine, watcher, request.model)


def make_plan(benchmark: Benchmark, request: Request, cache: Path | None = None) -> Plan:
    """All settings of a chain, resolved."""
    data = Data.of(benchmark, request.domains, cache)
    if len(data.domains) < 2:
        raise CosdaError(
            f"a run needs a source and at least one target; {benchmark.name} with "
            f"--domains {','.join(data.domains)} has one domain."
        )
    return resolve(data, request)


def train_source(
    data: BenchmarkLike,
    domain: str,
    *,
    out: str | Path = "runs",
    machine: Machine | None = None,
    watcher: Watcher | None = None,
    **options: Unpack[Options],
) -> Result:
    """Train a source model on one labelled domain, or load it where that has been done before.

    Args:
        data: a benchmark, its name or folder, or whatever else `load_benchmark` reads.
        domain: the labelled domain to train on.
        out: where the folder of its training lies. A training that was interrupted goes on.
        machine: device, threads, cache.
        watcher: is told what happens.
        options: settings by name, see `cosda.Options`; here ``epochs`` and ``batch_size`` are those of the source.

    Raises:
        CosdaError: wrong input or an impossible request.

    Example:
        >>> result = cosda.train_source("digits", "print", epochs=5)
        >>> result.model.save("print-model")
    """
    return train_request(data, Request.of("source", (domain,), **options).of_source(), out, machine, watcher)


def train_request(
    data: BenchmarkLike,
    request: Request,
    out: str | Path = "runs",
    machine: Machine | None = None,
    watcher: Watcher | None = None,
) -> Result:
    """`train_source` for a request that is made already; its one domain is the source."""
    machine, watcher = machine or Machine(), main_watcher(watcher)
    check_folder(out)
    benchmark = _benchmark(data, machine)
    plan = resolve(Data.of(benchmark, request.domains, machine.cache_folder), request)
    with prepare(plan, {plan.source: benchmark[plan.source]}, machine, watcher) as prepared:
        prepared.announce(not is_trained(plan, Path(out)))
        model = source_model(prepared, Path(out))
    return Result(model, source_run(plan, Path(out)))


def evaluate(
    model: Model | str | Path,
    data: DataLike,
    *,
    domain: str | None = None,
    experts_in_memory: int | None = None,
    machine: Machine | None = None,
    watcher: Watcher | None = None,
) -> Evaluation:
    """Measure a model on the test images of one labelled domain.

    Args:
        model: a model, or its folder.
        data: the labelled images.
        domain: the domain that they are from. A model with masks must be told; a domain bank then answers by that
            domain's expert alone, and routes each image where it is not told.
        experts_in_memory: how many experts of a domain bank are kept ready.
        machine: device, threads, cache.
        watcher: is told what happens.

    Raises:
        CosdaError: the images have no labels, or classes that the model does not know; or the domain is unknown.

    Example:
        >>> cosda.evaluate("adapted-model", "office31/webcam").top1
    """
    return _answered(_model(model), data, domain, machine, watcher, experts_in_memory).evaluation


@dataclass(frozen=True)
class _Answered:
    """A model's answers on the labelled images of a domain."""

    evaluation: Evaluation
    correct: NDArray[np.bool_]  # (N,)


def _answered(
    model: Model,
    data: DataLike,
    domain: str | None,
    machine: Machine | None,
    watcher: Watcher | None,
    experts_in_memory: int | None = None,
) -> _Answered:
    network = answering(model.network, domain, experts_in_memory)
    machine = machine or Machine()
    measured = load_domain(data, model.classes, follow_links=machine.follow_links)
    if measured.labels is None:
        raise CosdaError(
            f"{measured.name} has no labels to compare with: images must lie in one folder per class, "
            "named as the model's classes. 'cosda predict' needs no labels."
        )
    with _opened(model, network, measured, machine, watcher) as (loader, packed):
        assert packed.domain.labels is not None
        labels = packed.domain.labels[packed.domain.test]
        predicted = predicted_classes(network, loader)
    images, correct = counts(confusion(predicted, labels, len(model.classes)))
    evaluation = Evaluation(domain or measured.name, model.classes, images, correct, dict(packed.skipped))
    return _Answered(evaluation, predicted == labels)


def predict(
    model: Model | str | Path,
    data: DataLike,
    *,
    domain: str | None = None,
    explain: bool = False,
    experts_in_memory: int | None = None,
    machine: Machine | None = None,
    watcher: Watcher | None = None,
) -> list[Prediction]:
    """The class of every image with its probability, in the order of the input.

    An image that cannot be read has a prediction without a class, which says why.

    Args:
        model: a model, or its folder.
        data: the images.
        domain: the domain that they are from. A model with masks must be told; a domain bank then answers by that
            domain's expert alone, and routes each image where it is not told.
        explain: also say which domain a domain bank takes each image for.
        experts_in_memory: how many experts of a domain bank are kept ready.
        machine: device, threads, cache.
        watcher: is told what happens.

    Raises:
        CosdaError: wrong input, an unknown domain, or nothing to explain.

    Example:
        >>> [one.class_name for one in cosda.predict("adapted-model", "photos/today")]
        >>> [one.route.domain for one in cosda.predict("adapted-model", "photos/today", explain=True)]
    """
    model = _model(model)
    network = answering(model.network, domain, experts_in_memory)
    if explain:
        routes(network)  # an error before any work
    machine = machine or Machine()
    images = load_domain(data, labels=False, follow_links=machine.follow_links)
    images = replace(images, test=everything(len(images)))
    names = images.names
    with _opened(model, network, images, machine, watcher) as (loader, packed):
        found = zip(*answers(network, loader, explain), strict=True)
    reasons, predictions = dict(packed.skipped), []
    for name in names:
        row, route = (None, None) if name in reasons else next(found)
        predictions.append(Prediction(name, model.classes, row, reasons.get(name, ""), route))
    return predictions


def diff(
    a: Model | str | Path,
    b: Model | str | Path,
    data: DataLike,
    *,
    domain: str | None = None,
    pictures: int = 0,
    machine: Machine | None = None,
    watcher: Watcher | None = None,
) -> Diff:
    """Which images change class when model ``b`` takes the place of model ``a``.

    Args:
        a: a model, or its folder.
        b: another one of the same classes.
        data: the images. Folder names and labels mean nothing here and are not read.
        domain: the domain that they are from, as for `predict`; both models are told.
        pictures: of how many images to keep a small picture, the most confident changes first.
        machine: device, threads, cache.
        watcher: is told what happens.

    Raises:
        CosdaError: wrong input, or models of different classes.

    Example:
        >>> cosda.diff("office-model", "adapted-model", "photos/warehouse").pairs
    """
    names = ["a model" if isinstance(model, Model) else str(model) for model in (a, b)]
    a, b = _model(a), _model(b)
    _check_same_classes(a, b)
    machine = machine or Machine()
    images = load_domain(data, labels=False, follow_links=machine.follow_links)
    first = predict(a, images, domain=domain, machine=machine, watcher=watcher)
    second = predict(b, images, domain=domain, machine=machine)  # what cannot be read has been told
    changed = [
        (ComparedImage(before.image, *before.top(1)[0], *after.top(1)[0]), position)
        for position, (before, after) in enumerate(zip(first, second, strict=True))
        if before.class_name != after.class_name
    ]
    changed.sort(key=lambda change: -change[0].before_probability * change[0].after_probability)
    skipped = {one.image: one.skipped for one in first if one.skipped}
    kept = {change.image: picture(images, position) for change, position in changed[:pictures]}
    return Diff(
        a=names[0],
        b=names[1],
        images=len(first) - len(skipped),
        changed=tuple(change for change, _ in changed),
        skipped=skipped,
        pictures={image: content for image, content in kept.items() if content is not None},
    )


def _check_same_classes(a: Model, b: Model) -> None:
    alone = [sorted(set(one.classes) - set(other.classes)) for one, other in ((a, b), (b, a))]
    if any(alone):
        only = "; ".join(f"only {name} has {listed(names)}" for name, names in zip("AB", alone, strict=True) if names)
        raise CosdaError(f"only models of the same classes can be compared: {only}.")


def profile(
    model: Model | str | Path,
    data: DataLike,
    *,
    domain: str | None = None,
    freeze_encoder: bool = False,
    labelled: bool = False,
    trained_on: bool = False,
    machine: Machine | None = None,
    watcher: Watcher | None = None,
) -> Model:
    """A copy of a model with a profile of what it was trained on, by which a domain bank recognises such images.

    A model that cosda trained has one. One that came from elsewhere gets it from any images of that kind; labels mean
    nothing here and are not read, unless ``labelled`` asks for it. The profile of a bank's base is replaced, and its
    router follows.

    Args:
        model: a model, or its folder; a domain bank too.
        data: images of the kind that the model was trained on.
        domain: the name of their domain; by default that of the profile that the model has, else that of the data.
        freeze_encoder: make a profile of features, for a bank that will be made with ``freeze_encoder``.
        labelled: read the labels too, and learn from them how far the model's probabilities can be believed; estimated
            accuracies rest on that.
        trained_on: the model was trained on these very images. It is more confident of them than of new ones, so only
            what its first layers see in them is kept for `monitor`.
        machine: device, threads, cache.
        watcher: is told what happens.

    Raises:
        CosdaError: wrong input, too few images, or a name that an expert has.

    Example:
        >>> cosda.profile("my-model", "photos/office").save("my-model", overwrite=True)
    """
    model = _model(model)
    network = model.network.base
    bank = model.network if isinstance(model.network, DomainBank) else DomainBank(network, (), freeze_encoder)
    if freeze_encoder and not bank.late:
        raise CosdaError("the experts of this bank have encoders of their own. Leave --freeze-encoder out.")
    machine = machine or Machine()
    classes = model.classes if labelled else None
    images = load_domain(data, classes, labels=labelled, follow_links=machine.follow_links)
    if labelled and images.labels is None:
        raise CosdaError(f"{images.name} has no labels: its images must lie in one folder per class.")
    had = network.profile
    known = had.name if had is not None and had.images else None
    name = domain or known or images.name
    model.check_own_name(name)
    with _opened(model, bank, images, machine, watcher, "train") as (loader, packed):
        others = tuple(expert.profile for expert in bank.experts)
        stranger = None if trained_on else told(network, name)
        made = Look(name, False, loader).profile(bank.gauge, network, others, stranger)
        made = replace(made, calibration=None if had is None else had.calibration)  # the network is the same
        if labelled and packed.domain.labels is not None:
            truth = torch.from_numpy(packed.domain.labels[packed.domain.train])
            logits = torch.cat([output.logits.cpu() for _, output in outputs(told(network, name), loader)])
            made = replace(made, calibration=calibrate(logits, truth, held_out=not trained_on))
    return model.with_profile(made)


def monitor(
    model: Model | str | Path,
    data: DataLike,
    *,
    alpha: float = 0.05,
    machine: Machine | None = None,
    watcher: Watcher | None = None,
) -> Drift:
    """Whether images come from a domain that a model knows, and whether it should be adapted to them.

    They are compared with the profiles of all domains that the model knows. Nothing is trained or written.

    Args:
        model: a model, or its folder.
        data: the images, of one place and time. Labels are not read.
        alpha: the rate of false alarms that is accepted: below this p-value a difference counts as drift.
        machine: device, threads, cache.
        watcher: is told what happens.

    Raises:
        CosdaError: wrong input, or a model without a profile.

    Example:
        >>> cosda.monitor("adapted-model", "photos/today").adapt
        False
    """
    if not LEAST_ALPHA <= alpha <= 0.5:
        raise CosdaError(f"alpha is {alpha:g}; it must lie between {LEAST_ALPHA:g} and 0.5, and 0.05 is usual.")
    model, machine = _model(model), machine or Machine()
    images = load_domain(data, labels=False, follow_links=machine.follow_links)
    images = replace(images, test=everything(len(images)))
    name = str(data) if isinstance(data, str | PathLike) else images.name
    with _opened(model, model.network, images, machine, watcher) as (loader, packed):
        return replace(watch(model.network, loader, name, alpha), skipped=dict(packed.skipped))


def export(
    model: Model | str | Path,
    to: str | Path,
    *,
    format: str | None = None,
    domain: str | None = None,
    experts: str = "together",
    verify: DataLike | None = None,
    overwrite: bool = False,
    machine: Machine | None = None,
    watcher: Watcher | None = None,
) -> Exported:
    """Write a model as a file that runs without cosda, once the file has shown that it says what the model says.

    Args:
        model: a model, or its folder.
        to: the file; with ``experts="separate"`` a folder.
        format: ``onnx``, ``torch-export`` or ``torchscript``; by default the one that the ending names: ``.onnx``,
            ``.pt2``, ``.pt``.
        domain: which mask to use, for a model that has one for each domain; of a domain bank, the one whose expert is
            wanted alone.
        experts: of a domain bank, ``together`` in one graph that routes, or ``separate``, each in a file of its own
            beside the router's.
        verify: images on which the file is tried; by default some that come with cosda, and noise.
        overwrite: replace what was exported there before.
        machine: threads and cache.
        watcher: is told what happens.

    Raises:
        CosdaError: an impossible request; or the file differs from the model in a class, or by more than 0.0001 in a
            probability. Nothing is then written.

    Example:
        >>> cosda.export("adapted-model", "model.onnx", verify="photos/today").difference
    """
    place = Path(to).expanduser()
    return deploy.export(
        _model(model), place, format, domain, experts, verify, overwrite, machine or Machine(), watcher
    )


@contextmanager
def _opened(
    model: Model,
    network: Network,
    domain: Domain,
    machine: Machine,
    watcher: Watcher | None,
    split: str = "test",
) -> Iterator[tuple[Loader, Packed]]:
    """A loader of a split of the domain for a network of a model, which is put on the device."""
    check_input(model, domain)
    with machine.open() as device:
        to_device(network, device)
        packed = readable(domain, model.preprocessing.size, machine, main_watcher(watcher))
        yield open_loader(packed.domain, split, model.preprocessing, device, EVALUATION_BATCH), packed


def _model(model: Model | str | Path) -> Model:
    return model if isinstance(model, Model) else load(model)


def _benchmark(data: BenchmarkLike, machine: Machine) -> Benchmark:
    return data if isinstance(data, Benchmark) else load_benchmark(data, follow_links=machine.follow_links)
