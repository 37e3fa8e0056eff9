"""A run: source model, then one target after the other, all domains measured after each.

A run may be killed at any moment. It goes on after the last finished epoch, and ends with the bits of a run that
was never disturbed: what is recorded or saved after a checkpoint is cut off and done again.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cosda import distributed, metrics
from cosda.data.domain import Domain, Index
from cosda.data.loader import Loader, open_loader
from cosda.errors import CosdaError
from cosda.methods import Method, method_class
from cosda.models.artifact import Model
from cosda.models.masks import MaskedNetwork
from cosda.models.network import Network, place, statistics
from cosda.parts.dual_speed import set_statistics, statistics_lent
from cosda.randomness import stream
from cosda.records import Run, RunFolder, read_run
from cosda.run.adapt import Epoch, Training
from cosda.run.carry import Carry, State
from cosda.run.checkpoint import load_checkpoint, save_checkpoint
from cosda.run.config import Plan
from cosda.run.edges import check_edges, open_edges
from cosda.run.environment import open_arithmetic, write_environment
from cosda.run.evaluate import confusion, counts, embed, predicted_classes
from cosda.run.prepare import EVALUATION_BATCH, Machine, prepare
from cosda.run.source import new_model, source_model, trained_part
from cosda.run.together import open_folder
from cosda.run.validators import Selector, predict
from cosda.run.watch import Watcher
from cosda.run.writers import Log
from cosda.selection import Candidate

Confusions = dict[str, Index | None]  # by domain; None where it has no labels


def execute(
    plan: Plan,
    domains: Mapping[str, Domain],
    runs: Path,
    machine: Machine | None = None,
    watcher: Watcher | None = None,
    model: Model | None = None,
) -> Run:
    """Do a run, or what is left of it; a finished one is only read.

    ``model`` is a source model to start from; without it one is trained on the first domain. A domain of the chain
    that has no data here (the source of a given model) is not measured.
    """
    machine = machine or Machine()
    machine.join()
    watcher = watcher if watcher and distributed.leads() else Watcher()
    with open_folder(runs / plan.name, plan.as_json(), machine.patience) as folder:
        if folder.finished:
            watcher.note(f"{folder.path} is finished; nothing to do")
        else:
            device = machine.open()
            arithmetic = open_arithmetic(plan.section("network").precision, machine.compile, device, watcher)
            write_environment(folder, device, arithmetic)
            # A copy, because the given model stays as it is.
            model = replace(model, network=copy.deepcopy(model.network)) if model else new_model(plan)
            model = _with_masks(model, plan, domains, watcher)
            model.network.arithmetic = arithmetic
            ready = {
                name: prepare(domain, plan, model, device, machine, watcher).domain for name, domain in domains.items()
            }
            for target in plan.domains[1:]:
                check_edges(plan.section("adapt", target), ready[target])
                if plan.select == "oracle" and ready[target].labels is None:
                    raise CosdaError(
                        f"the rule 'oracle' chooses by labels, and '{target}' has none. Take another --select."
                    )
            if plan.model is None:
                model = source_model(plan, ready[plan.domains[0]], model, runs, device, watcher, machine.log)
                model.network.arithmetic = arithmetic
            with Log(folder, machine.log, watcher):
                _Chain(plan, ready, model, folder, device, watcher).run()
    return read_run(folder.path)


def _with_masks(model: Model, plan: Plan, domains: Mapping[str, Domain], watcher: Watcher) -> Model:
    """A given model with masks gets one for each target that is new to it; its source it must know."""
    network = model.network
    if not isinstance(network, MaskedNetwork):
        if method_class(plan.method).source_settings:
            watcher.note(
                f"the given model has no masks, so {plan.method} protects nothing of what it knows; "
                f"'cosda run --method {plan.method}' trains source models that have them"
            )
        return model
    if plan.domains[0] in domains:
        network.for_domain(plan.domains[0])
    new = [name for name in plan.domains[1:] if name not in network.domains]
    if not new:
        return model
    watcher.note(f"the model gets a new mask for {', '.join(new)}; it had masks for {', '.join(network.domains)}")
    grown = network.with_domains(new, stream(plan.seed, "masks"))
    return replace(model, network=grown, architecture=replace(model.architecture, domains=grown.domains))


@dataclass
class _Chain:
    """The stages of one run."""

    plan: Plan
    domains: Mapping[str, Domain]
    model: Model
    folder: RunFolder
    device: torch.device
    watcher: Watcher

    def run(self) -> None:
        network = trained_part(self.model.network, self.plan)
        self.student = place(network, self.device).requires_grad_(True)
        saved = load_checkpoint(self._checkpoint)
        self.folder.rewind(saved["records"] if saved else 0)
        first = int(saved["stage"]) if saved else 1
        if saved is None:
            self._close_stage(0, {})
        else:  # the student that the stage began with; the method may need it to set itself up
            self.student.load_state_dict(saved["incoming"])
            self.model = replace(self.model, lineage=saved["lineage"])
        method = self.plan.make_method()
        for stage in range(first, len(self.plan.domains)):
            self._adapt(stage, method, saved)
            saved = None
        self.folder.finish(select=self.plan.select, stages=len(self.plan.domains) - 1)

    def _adapt(self, stage: int, method: Method, saved: Any) -> None:
        target = self.plan.domains[stage]
        for key, value in self.plan.make_method(target).settings().items():
            setattr(method, key, value)
        how = self.plan.section("adapt", target)
        pictures = open_loader(
            self.domains[target].without_labels(), "train", self.model.preprocessing, self.device,
            how.batch_size, self.plan.seed, how.epoch_pictures,
            open_edges(how, how.epochs, self.domains[target], self.device),
        )  # fmt: skip
        incoming = copy.deepcopy(self.student)
        before = statistics(incoming)
        carry = Carry(how, {"network": incoming.state_dict(), "own": before, "merged": before})
        kind = method.native_statistics if how.statistics == "native" else how.statistics
        name = f"{self.plan.label} → {target}"
        student = self.student.for_domain(target)
        selector = Selector(self.plan.select, incoming.for_domain(target), self._judged(target), how.validate)
        same = np.array_equal(selector.pictures.positions, self.domains[target].test)
        training = Training(method, student, pictures, how, self.plan.seed, stage, name, self.watcher)
        adapted: Confusions = {}  # of the model that the rule would choose now, where they were measured

        def checkpoint() -> None:
            state = {"stage": stage, "training": training.state_dict(), "best": selector.best, "mean": carry.mean}
            state["incoming"] = carry.incoming["network"]
            progress = {"lineage": self.model.lineage, "records": self.folder.length()}
            save_checkpoint(self._checkpoint, state | progress)
            self.folder.settle()

        def model() -> dict[str, Any]:
            """A copy of what the method would hand on now, with both kinds of BatchNorm statistics."""
            predictor = method.predictor(target)
            network = {key: value.detach().clone() for key, value in predictor.state_dict().items()}
            return {"network": network, **{each: training.statistics(each, predictor) for each in ("own", "merged")}}

        def after_epoch(facts: Epoch) -> None:
            self.folder.append("loss", stage=stage, **facts.recorded)
            self.folder.append_timing(stage=stage, **facts.timing)
            predictor = method.predictor(target)
            with statistics_lent(predictor, training.statistics(kind, predictor)):
                # In the transductive protocol pictures that are judged and measured are the same: look at them once.
                seen = predict(predictor.for_domain(target), selector.pictures) if same else None
                found = {target: self._confusion(predictor, target, seen)}
                accuracy = self._record(found[target], stage, facts.epoch, target)
                if how.measure == "source":
                    source = self.plan.domains[0]
                    found[source] = self._confusion(predictor, source)
                    self._record(found[source], stage, facts.epoch, source)
                scores = selector.scores(predictor.for_domain(target), seen)
            if scores:
                judged = {"epoch": facts.epoch, "pictures": len(selector.pictures), "scores": scores}
                self.folder.append("validation", stage=stage, **judged)
            selector.consider(Candidate(facts.epoch, accuracy, scores), model)
            if selector.best is None or selector.best["epoch"] == facts.epoch:
                adapted.update(found)
            carry.follow(model)
            checkpoint()

        def predictions(state: State) -> Tensor:
            self._take(state, kind)
            return predict(student, selector.pictures)

        if saved is None:
            checkpoint()
        else:
            training.load_state_dict(saved["training"])
            selector.best, carry.mean = saved["best"], saved["mean"]
        training.run(after_epoch)
        if stage == 1:  # the source model's; not at the beginning, so that training begins at once
            self._embed(0, incoming)
        best = selector.best or {"epoch": how.epochs - 1 if how.epochs else None, "model": model()}
        self.folder.append("chosen", stage=stage, rule=self.plan.select, epoch=best["epoch"])
        handed, carried = carry.hand_on(best["model"], predictions)
        self.folder.append("carried", stage=stage, **carried)
        self._take(handed, kind)
        step = {"step": "adapt", "domain": target, "method": self.plan.method, "variant": self.plan.variant}
        settings = {"seed": self.plan.seed, "epochs": how.epochs, "settings": method.settings()}
        rule = {"select": self.plan.select, "epoch": best["epoch"], "carry": how.carry, "share": carried["share"]}
        self.model = replace(self.model, lineage=[*self.model.lineage, {**step, **settings, **rule}])
        self._close_stage(stage, {} if carried["share"] else adapted)
        self._measure_otherwise(stage, kind, handed)

    def _take(self, state: State, kind: str) -> None:
        """Let the student be a model that the stage kept."""
        self.student.load_state_dict(state["network"])
        set_statistics(self.student, state[kind])

    def _close_stage(self, stage: int, known: Confusions) -> None:
        """Save what the stage hands on, and measure it on all domains of the chain, seen or not.

        ``known`` are the confusions of those on which this very model was measured after its epoch.
        """
        self.model.save(self.folder.path / "models" / f"stage-{stage}", overwrite=True, link=True)
        confusions: dict[str, Index] = {}
        for number, name in enumerate(self.plan.domains):
            matrix = known[name] if name in known else self._confusion(self.student, name)
            self._record(matrix, stage, None, name)
            if matrix is not None:
                confusions[f"d{number}"] = matrix.astype(np.int32)
        last = stage == len(self.plan.domains) - 1
        if confusions and (last or stage == 0):
            self._store("confusion", stage, confusions)
        if last:
            self._embed(stage, self.student)

    def _measure_otherwise(self, stage: int, kind: str, found: Mapping[str, Any]) -> None:
        """What the same weights give with the other BatchNorm statistics: part of all forgetting is in these."""
        other = "own" if kind == "merged" else "merged"
        if found[other]:
            with statistics_lent(self.student, found[other]):
                for name in self.plan.domains:
                    matrix = self._confusion(self.student, name)
                    self._record(matrix, stage, None, name, "alternative", statistics=other)

    def _confusion(self, network: Network, name: str, seen: Tensor | None = None) -> Index | None:
        """Which class of a domain is taken for which; None where there are no labels.

        ``seen`` are predictions for its test pictures, where somebody has made them already.
        """
        domain = self.domains.get(name)
        if domain is None or domain.labels is None or len(domain.test) == 0:
            return None
        if seen is None:
            predicted = predicted_classes(network.for_domain(name), self._test_loader(domain))
        else:
            predicted = seen.argmax(dim=1).cpu().numpy()
        return confusion(predicted, domain.labels[domain.test], len(self.plan.classes))

    def _record(
        self, matrix: Index | None, stage: int, epoch: int | None, name: str, kind: str = "accuracy", **more: str
    ) -> float | None:
        """The benchmark's accuracy on a domain, which is written down; None where there are no labels."""
        if matrix is None:
            return None
        images, correct = counts(matrix)
        facts = {"domain": name, "split": "test", "images": images, "correct": correct}
        self.folder.append(kind, stage=stage, epoch=epoch, **facts, **more)
        if kind == "accuracy":
            self.watcher.measured(stage, epoch, name, sum(correct) / sum(images))
        return metrics.accuracy(self.plan.headline, correct, images)

    def _embed(self, stage: int, network: Network) -> None:
        known = [(number, self.domains[n]) for number, n in enumerate(self.plan.domains) if n in self.domains]
        loaders = [(number, self._test_loader(domain), domain.labels) for number, domain in known]
        self._store("embedding", stage, embed(network, loaders, self.plan.seed, self.plan.domains))

    def _store(self, kind: str, stage: int, arrays: Mapping[str, Any]) -> None:
        """Put what is too large for a line of the records into a file beside them."""
        path = self.folder.path / kind / f"stage-{stage}.npz"
        if distributed.leads():
            path.parent.mkdir(exist_ok=True)
            np.savez_compressed(path, allow_pickle=False, **arrays)
        self.folder.append(kind, stage=stage, file=f"{kind}/{path.name}")

    def _judged(self, target: str) -> Loader:
        """The pictures that validators see: those of training, without labels."""
        domain = self.domains[target].without_labels()
        return open_loader(domain, "train", self.model.preprocessing, self.device, EVALUATION_BATCH, self.plan.seed)

    def _test_loader(self, domain: Domain) -> Loader:
        return open_loader(domain, "test", self.model.preprocessing, self.device, EVALUATION_BATCH)

    @property
    def _checkpoint(self) -> Path:
        return self.folder.path / "checkpoint" / "last.safetensors"


def carried_path(run: Run, stage: int | None = None) -> Path:
    """Where the model lies that a stage of a run handed on; the last one unless a stage is given."""
    number = len(run.domains) - 1 if stage is None else stage
    return run.path / "models" / f"stage-{number}"
