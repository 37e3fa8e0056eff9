"""The source model: trained once for a domain, settings and seed, and shared by all runs that start from it."""

from __future__ import annotations

import datetime
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from cosda.config.plan import Plan
from cosda.data.domain import Domain, Index
from cosda.data.loader import Loader
from cosda.errors import CosdaError
from cosda.files import Json, digest, safe_name
from cosda.methods import METHODS
from cosda.models.artifact import Model, load
from cosda.models.calibration import Calibration, calibrate
from cosda.models.network import Network
from cosda.models.profile import FEWEST, DomainProfile
from cosda.models.router import Gauge
from cosda.randomness import derive
from cosda.records.folder import FOR_EVER, RunFolder
from cosda.records.run import Run, read_whole_run
from cosda.records.writers import Log
from cosda.run.checkpoint import Checkpoint
from cosda.run.environment import write_environment
from cosda.run.evaluate import measure, outputs
from cosda.run.prepare import Prepared
from cosda.run.profile import Look
from cosda.run.shared_folder import open_folder
from cosda.run.supervised import Supervised
from cosda.run.train import Epoch, Training


def source_config(plan: Plan) -> Json:
    """What decides the numbers of the source model: nothing of the targets, and of most methods nothing."""
    shared: Json = {
        "kind": "source",
        "benchmark": plan.data.benchmark,
        "fingerprint": plan.data.source_fingerprint,
        "domain": plan.source,
        "classes": list(plan.data.classes),
        "headline": plan.data.headline,
        "seed": plan.seed,
        "settings": {name: dict(plan.settings[name]) for name in ("data", "network", "source", "edges")},
    }
    own = {key: plan.settings["method"][key] for key in METHODS.find(plan.method).source_settings}
    return shared | {"method": plan.method, "domains": list(plan.data.domains), "own": own} if own else shared


def source_path(plan: Plan, runs: Path) -> Path:
    """The folder in which the source model of a plan is trained."""
    words = [safe_name(plan.data.benchmark), safe_name(plan.source), f"s{plan.seed}", digest(source_config(plan))]
    return runs / "sources" / "-".join(words)


def source_model(prepared: Prepared, runs: Path) -> Model:
    """Train a new model on the source domain of a plan, or load it where that has been done before."""
    plan, domain = prepared.plan, prepared.domains[prepared.plan.source]
    if domain.labels is None:
        raise CosdaError(
            f"the source domain '{domain.name}' has no labels; put its images into one folder per class, "
            "or start from a trained model with --model."
        )
    with open_folder(source_path(plan, runs), source_config(plan), wait=FOR_EVER) as folder:
        if not folder.finished:
            with Log(folder, prepared.machine.log, prepared.watcher):
                _Source(prepared, domain, domain.labels, folder).train()
    return load(folder.path / "model")


def is_trained(plan: Plan, runs: Path) -> bool:
    """Whether the source model of a plan is there already."""
    return (source_path(plan, runs) / "done.json").exists()


def source_run(plan: Plan, runs: Path) -> Run:
    """The training of a source model as read back."""
    return read_whole_run(source_path(plan, runs))


class _Source:
    """The training of one source model."""

    def __init__(self, prepared: Prepared, domain: Domain, labels: Index, folder: RunFolder) -> None:
        plan, settings = prepared.plan, prepared.plan.source_training
        self.prepared, self.domain, self.labels, self.folder = prepared, domain, labels, folder
        self.settings = settings
        self.trained, self.held_out = split_off(domain.train, settings.holdout, plan.seed)
        truth = torch.from_numpy(labels[self.trained]).to(prepared.device)
        method = Supervised(settings.encoder_rate, settings.label_smoothing, truth, plan.make_method())
        loader = prepared.training_loader(replace(domain, train=self.trained), settings)
        name = f"source {domain.name}"
        self.training = Training(method, prepared.network, loader, settings, plan.seed, 0, name, prepared.watcher)
        self.checkpoint = Checkpoint(folder)

    def train(self) -> None:
        """Train what is left, measure, and save the model."""
        write_environment(self.folder, self.prepared.device, self.prepared.network.arithmetic)
        saved = self.checkpoint.load()
        if saved is not None:
            self.training.load_state_dict(saved["training"])
        self.training.run(self._after_epoch)
        self._measure("test", self.domain.test, None)
        plan = self.prepared.plan
        step = {"step": "source", "domain": plan.source, "benchmark": plan.data.benchmark, "seed": plan.seed}
        more = {"images": len(self.domain.train), "date": datetime.date.today().isoformat()}
        lineage = [{**step, "settings": asdict(self.settings), **more}]
        self.prepared.model.network.profile = self._profile()
        replace(self.prepared.model, lineage=lineage).save(self.folder.path / "model", overwrite=True)
        self.folder.finish()

    def _after_epoch(self, facts: Epoch) -> None:
        self.folder.append_epoch(0, facts.recorded, facts.timing)
        self._measure("holdout", self.held_out, facts.epoch)
        self.checkpoint.save(training=self.training.state_dict())

    def _profile(self) -> DomainProfile | None:
        """Of the source domain; None where it has too few images for one."""
        look = Look(self.domain.name, self.prepared.frozen, self._loader(self.domain.train))
        network = self.prepared.network
        if len(look) < FEWEST:
            return None
        gauge, own = Gauge(network.encoder, look.frozen), network.for_domain(self.domain.name)
        profile = look.profile(gauge, network)
        # Images that the model was not trained on where there are any: held-out ones, or the test split.
        apart = np.setdiff1d(self.domain.test, self.trained)
        unseen = next((some for some in (self.held_out, apart) if len(some) >= FEWEST), None)
        groups = {} if unseen is None else replace(look, images=self._loader(unseen)).groups(own, gauge)
        return replace(
            profile,
            groups={**profile.groups, **groups},
            calibration=self._calibration(own, self.trained if unseen is None else unseen, unseen is not None),
        )

    def _calibration(self, network: Network, positions: Index, held_out: bool) -> Calibration:
        logits = torch.cat([output.logits.double().cpu() for _, output in outputs(network, self._loader(positions))])
        return calibrate(logits, torch.from_numpy(self.labels[positions]), held_out)

    def _loader(self, positions: Index) -> Loader:
        """Some images of the domain."""
        domain = replace(self.domain.without_labels(), train=positions)
        return self.prepared.loader(domain, "train", self.prepared.plan.seed)

    def _measure(self, split: str, positions: Index, epoch: int | None) -> None:
        if not len(positions):
            return
        network = self.prepared.network.for_domain(self.domain.name)
        images, correct = measure(
            network, self._loader(positions), self.labels[positions], len(self.prepared.plan.data.classes)
        )
        facts = {"domain": self.domain.name, "split": split, "images": images, "correct": correct}
        self.folder.append("accuracy", stage=0, epoch=epoch, **facts)


def split_off(positions: Index, share: float, seed: int) -> tuple[Index, Index]:
    """Split positions into those that are trained on and a random share that is only measured."""
    order = np.random.default_rng(derive(seed, "holdout")).permutation(len(positions))
    count = round(share * len(positions))
    return np.sort(positions[order[count:]]), np.sort(positions[order[:count]])
