"""The source model: trained once for a domain, settings and seed, and shared by all runs that start from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from cosda.config.resolve import Plan
from cosda.config.schema import SourceSettings
from cosda.data.domain import Domain, Index
from cosda.data.loader import Loader, open_loader
from cosda.errors import CosdaError
from cosda.files import Json, digest
from cosda.methods import METHODS
from cosda.models.architecture import Architecture
from cosda.models.artifact import Model, load
from cosda.models.network import Network, to_device
from cosda.preprocessing import Preprocessing
from cosda.randomness import derive
from cosda.records.folder import FOR_EVER, RunFolder
from cosda.records.writers import Log
from cosda.run.checkpoint import load_checkpoint, save_checkpoint
from cosda.run.edges import open_edges
from cosda.run.environment import write_environment
from cosda.run.evaluate import measure
from cosda.run.prepare import EVALUATION_BATCH
from cosda.run.shared_folder import open_folder
from cosda.run.supervised import Supervised
from cosda.run.train import Epoch, Training
from cosda.watch import Watcher


def source_config(plan: Plan) -> Json:
    """What decides the numbers of the source model: nothing of the targets, and of most methods nothing."""
    shared: Json = {
        "kind": "source",
        "benchmark": plan.benchmark,
        "fingerprint": plan.source_fingerprint,
        "domain": plan.domains[0],
        "classes": list(plan.classes),
        "seed": plan.seed,
        "settings": {name: dict(plan.settings[name]) for name in ("data", "network", "source")},
    }
    if plan.settings["network"]["precision"] == "32":  # models of earlier versions keep their names
        del shared["settings"]["network"]["precision"]
    own = {key: plan.settings["method"][key] for key in METHODS.find(plan.method).source_settings}
    return shared | {"method": plan.method, "domains": list(plan.domains), "own": own} if own else shared


def source_name(plan: Plan) -> str:
    """The name of the source model's folder below ``sources``."""
    return f"{plan.benchmark}-{plan.domains[0]}-s{plan.seed}-{digest(source_config(plan))}"


def source_model(
    plan: Plan,
    domain: Domain,
    model: Model,
    runs: Path,
    device: torch.device,
    watcher: Watcher,
    log: Sequence[str] = (),
) -> Model:
    """Train a new model on the source domain of a plan, or load it where that has been done before."""
    if domain.labels is None:
        raise CosdaError(
            f"the source domain '{domain.name}' has no labels; put its images into one folder per class, "
            "or start from a trained model with --model."
        )
    with open_folder(runs / "sources" / source_name(plan), source_config(plan), wait=FOR_EVER) as folder:
        if not folder.finished:
            with Log(folder, log, watcher):
                _train(plan, domain, domain.labels, model, folder, device, watcher)
    return load(folder.path / "model")


def _train(
    plan: Plan,
    domain: Domain,
    labels: Index,
    model: Model,
    folder: RunFolder,
    device: torch.device,
    watcher: Watcher,
) -> None:
    settings: SourceSettings = plan.section("source")
    write_environment(folder, device, model.network.arithmetic)
    trained, held_out = split_off(domain.train, settings.holdout, plan.seed)
    network = to_device(trained_part(model.network, plan), device)
    truth = torch.from_numpy(labels[trained]).to(device)
    method = Supervised(settings.encoder_rate, settings.label_smoothing, truth, plan.make_method())
    edges = open_edges(settings, settings.epochs, domain, device)

    def loader(positions: Index, batch_size: int) -> Loader:
        part = replace(domain, train=positions)
        return open_loader(
            part, "train", model.preprocessing, device, batch_size, plan.seed, settings.epoch_images, edges
        )

    def record(split: str, positions: Index, epoch: int | None) -> None:
        if len(positions):
            part = loader(positions, EVALUATION_BATCH)
            images, correct = measure(network.for_domain(domain.name), part, labels[positions], len(plan.classes))
            facts = {"domain": domain.name, "split": split, "images": images, "correct": correct}
            folder.append("accuracy", stage=0, epoch=epoch, **facts)

    def after_epoch(facts: Epoch) -> None:
        folder.append("loss", stage=0, **facts.recorded)
        folder.append_timing(stage=0, **facts.timing)
        record("holdout", held_out, facts.epoch)
        save_checkpoint(checkpoint, {"training": training.state_dict(), "records": folder.length()})
        folder.settle()

    training = Training(
        method, network, loader(trained, settings.batch_size), settings, plan.seed, 0, f"source {domain.name}", watcher
    )
    checkpoint = folder.path / "checkpoint" / "last.safetensors"
    saved = load_checkpoint(checkpoint)
    if saved is not None:
        training.load_state_dict(saved["training"])
    folder.rewind(saved["records"] if saved else 0)
    training.run(after_epoch)
    record("test", domain.test, None)
    step = {"step": "source", "domain": domain.name, "benchmark": plan.benchmark, "seed": plan.seed}
    lineage = [{**step, "settings": asdict(settings)}]
    replace(model, lineage=lineage).save(folder.path / "model", overwrite=True)
    folder.finish()


def new_model(plan: Plan) -> Model:
    """An untrained model with the network and the preprocessing of a plan; its weights follow from the seed."""
    data, network = plan.section("data"), plan.section("network")
    architecture = Architecture(network.encoder, network.bottleneck, len(plan.classes), plan.input_width)
    torch.manual_seed(derive(plan.seed, "network"))
    built = architecture.build(network.weights)
    built = plan.make_method().source_network(built, network.bottleneck, plan.domains)
    made_for = built.encoder.preprocessing
    assert isinstance(made_for, Preprocessing)
    preprocessing = replace(made_for, size=data.size or made_for.size, profile=data.profile, flip=data.flip)
    return Model(built, replace(architecture, domains=built.domains), plan.classes, preprocessing, [])


def trained_part(network: Network, plan: Plan) -> Network:
    """The network, or its head alone (shared, not copied) where the encoder is frozen and features are stored."""
    return network.with_encoder(nn.Identity()) if plan.settings["network"]["freeze_encoder"] else network


def split_off(positions: Index, share: float, seed: int) -> tuple[Index, Index]:
    """Split positions into those that are trained on and a random share that is only measured."""
    order = np.random.default_rng(derive(seed, "holdout")).permutation(len(positions))
    count = round(share * len(positions))
    return np.sort(positions[order[count:]]), np.sort(positions[order[:count]])
