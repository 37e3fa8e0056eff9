"""Before a run: readable domains, and a network on a device. Here alone it is decided what a frozen encoder means."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from cosda.config.plan import Plan
from cosda.config.schema import Optimisation
from cosda.data.cache import Packed, Skipped, content_key, pack, unpacked
from cosda.data.domain import Domain, Undecoded
from cosda.data.loader import Loader, open_loader
from cosda.distributed import collectives
from cosda.errors import CosdaError
from cosda.models.architecture import Architecture
from cosda.models.artifact import Model
from cosda.models.finite import check_finite
from cosda.models.network import Network, to_device
from cosda.preprocessing import Preprocessing
from cosda.randomness import derive, stream
from cosda.run.edges import check_edges, open_edges
from cosda.run.environment import open_arithmetic
from cosda.run.evaluate import EVALUATION_BATCH
from cosda.run.features import featurise
from cosda.run.machine import Machine
from cosda.watch import Watcher

MARGIN = 8 / 7  # images are stored at 256 pixels for a network that sees 224


@dataclass
class Prepared:
    """A plan with what it works on: domains that can be read, a model, and a device."""

    plan: Plan
    model: Model  # the whole one
    domains: Mapping[str, Domain]  # of images, or of features where the encoder is frozen
    device: torch.device
    machine: Machine
    watcher: Watcher
    skipped: Mapping[str, Skipped] = field(default_factory=dict)  # images of domains that cannot be read, and why

    def __post_init__(self) -> None:
        """``network`` is what is trained: the whole network, or its head alone; its weights are the model's own."""
        whole = self.model.network
        self.network: Network = whole.with_encoder(nn.Identity()) if self.plan.network.freeze_encoder else whole

    @property
    def frozen(self) -> bool:
        """Whether domains are features of a frozen encoder."""
        return self.plan.network.freeze_encoder

    def with_model(self, model: Model) -> Prepared:
        """The same with another model, which computes as the first one does."""
        model.network.arithmetic = self.model.network.arithmetic
        to_device(model.network, self.device)
        return replace(self, model=model)

    @property
    def preprocessing(self) -> Preprocessing:
        """How images become inputs."""
        return self.model.preprocessing

    def announce(self, with_source: bool) -> None:
        """Tell the watcher how much training is ahead, of the source model too where that is not there yet."""
        parts: list[tuple[str, Optimisation, float]] = [
            (name, self.plan.adapt(name), 1.0) for name in self.plan.targets
        ]
        if with_source:
            source = self.plan.source_training
            parts.append((self.plan.source, source, 1 - source.holdout))
        images = sum(
            settings.epochs * min(settings.epoch_images or sys.maxsize, round(share * len(self.domains[name].train)))
            for name, settings, share in parts
        )
        whole = any(True for _ in self.network.encoder.parameters())
        hint = "--freeze-encoder computes features once and trains the head alone, which takes a small part of that"
        self.watcher.job(self.plan.label, images, hint if whole else "")

    def training_loader(self, domain: Domain, settings: Optimisation) -> Loader:
        """Batches of a domain's training images, without labels, with edges mixed in where settings say so."""
        return open_loader(
            domain.without_labels(),
            "train",
            self.preprocessing,
            self.device,
            settings.batch_size,
            self.plan.seed,
            settings.epoch_images,
            open_edges(self.plan.edges, settings, domain, self.device),
        )

    def loader(self, domain: Domain, split: str, seed: int = 0) -> Loader:
        """Batches for looking at a split of a domain with a finished network."""
        return open_loader(domain, split, self.preprocessing, self.device, EVALUATION_BATCH, seed)


@contextmanager
def prepare(
    plan: Plan,
    domains: Mapping[str, Domain],
    machine: Machine,
    watcher: Watcher,
    model: Model | None = None,
) -> Iterator[Prepared]:
    """Make all domains readable for a given model, or a new one; what cannot work is an error before any training."""
    with machine.open() as device:
        given = None if model is None else model.network
        if model is None:
            model = new_model(plan)
        else:  # a copy, because the given model stays as it is
            check_finite(model.network, "the given model")
            model = _adopted(replace(model, network=copy.deepcopy(model.network)), plan, domains, watcher)
        model.network.arithmetic = open_arithmetic(plan.network.precision, machine.compile, device, watcher)
        to_device(model.network, device)
        packed = {name: make_readable(each, plan, model, device, machine, watcher) for name, each in domains.items()}
        ready = {name: each.domain for name, each in packed.items()}
        skipped = {name: each.skipped for name, each in packed.items() if each.skipped}
        _check_targets(plan, ready, given)
        yield Prepared(plan, model, ready, device, machine, watcher, skipped)


def new_model(plan: Plan) -> Model:
    """An untrained model with the network and the preprocessing of a plan; its weights follow from the seed."""
    architecture = Architecture(
        plan.network.encoder, plan.network.bottleneck, len(plan.data.classes), plan.data.input_width
    )
    torch.manual_seed(derive(plan.seed, "network"))
    network = architecture.build(plan.network.weights)
    network = plan.make_method().source_network(network, plan.network.bottleneck, plan.data.domains)
    made_for = network.encoder.preprocessing
    assert isinstance(made_for, Preprocessing)
    size, profile, flip = plan.input.size or made_for.size, plan.input.profile, plan.input.flip
    preprocessing = replace(made_for, size=size, profile=profile, flip=flip)
    return Model(network, replace(architecture, domains=network.domains), plan.data.classes, preprocessing, [])


def _adopted(model: Model, plan: Plan, domains: Mapping[str, Domain], watcher: Watcher) -> Model:
    """A given model as the plan's method needs it; a source domain that it is measured on it must know."""
    if plan.source in domains and model.network.needs_domain:
        model.network.for_domain(plan.source)
    network, note = plan.make_method().adopt(model.network, plan.targets, stream(plan.seed, "masks"))
    if note:
        watcher.note(note)
    return replace(model, network=network, architecture=replace(model.architecture, domains=network.domains))


def _check_targets(plan: Plan, domains: Mapping[str, Domain], given: Network | None) -> None:
    """Say before any training what a target lacks."""
    for target in plan.targets:
        plan.adapt(target).carry_rule.check(given, target, len(domains[target].train))
        check_edges(plan.edges, plan.adapt(target), domains[target])
        if plan.select == "oracle" and domains[target].labels is None:
            raise CosdaError(f"the rule 'oracle' chooses by labels, and '{target}' has none. Take another --select.")


def make_readable(
    domain: Domain, plan: Plan, model: Model, device: torch.device, machine: Machine, watcher: Watcher
) -> Packed:
    """What a run reads: images, or features where the plan freezes the encoder."""
    check_input(model, domain)
    packed = readable(domain, model.preprocessing.size, machine, watcher)
    if not plan.network.freeze_encoder or packed.domain.kind == "features":
        return packed
    # The key of the files, which is remembered, and not of their pixels, which would be read for it each time.
    key = content_key(domain, machine.cache_folder)
    encoder, cache = model.network.encoder, machine.cache_folder
    return replace(packed, domain=featurise(packed.domain, key, encoder, model.preprocessing, device, cache, watcher))


def check_input(model: Model, domain: Domain) -> None:
    """An error for images where a model takes feature vectors, and the other way round, or vectors of another width."""
    takes = "images" if model.preprocessing.of_images else f"feature vectors{_width(model.architecture.input_width)}"
    has = "images" if domain.kind == "images" else f"feature vectors{_width(domain.width)}"
    if has != takes and not (domain.kind == "features" and takes == "feature vectors"):  # of any width
        raise CosdaError(f"the model takes {takes}, but {domain.name} has {has}.")


def _width(width: int | None) -> str:
    return f" of width {width}" if width else ""


def readable(domain: Domain, size: int, machine: Machine, watcher: Watcher) -> Packed:
    """The domain with images that can be read: packed once, or decoded each time with ``pack=False``."""
    if domain.ignored:
        watcher.ignored(domain.name, domain.ignored_files())
    if not isinstance(domain.items, Undecoded):
        return Packed(domain, [])
    stored = round(size * MARGIN)
    progress = _Progress(watcher, domain.name)
    if machine.pack:
        prepared = pack(domain, stored, machine.cache_folder, strict=machine.strict, progress=progress)
    else:
        prepared = unpacked(domain, stored, strict=machine.strict, progress=progress)
    progress.end()
    if prepared.skipped:
        watcher.skipped(domain.name, prepared.skipped)
    return prepared


class _Progress:
    """Passes the progress of `pack`, which counts twice (reading, then decoding), on to a watcher."""

    def __init__(self, watcher: Watcher, name: str) -> None:
        self.watcher, self.name, self.done = watcher, name, 0

    def __call__(self, done: int, total: int) -> None:
        if done < self.done:
            self.end()
        if self.done == 0:
            self.watcher.begin(f"packing {self.name}", total, "images")
        self.watcher.advance(done - self.done)
        self.done = done

    def end(self) -> None:
        if self.done:
            self.watcher.end()
        self.done = 0


def main_watcher(watcher: Watcher | None) -> Watcher:
    """The watcher, in the main process of a run; the others work in silence."""
    return watcher if watcher is not None and collectives.is_main() else Watcher()
