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

from cosda.config.resolve import Plan
from cosda.data.domain import Domain
from cosda.data.loader import Loader, open_loader
from cosda.distributed import collectives
from cosda.errors import CosdaError
from cosda.methods import METHODS, Method
from cosda.models.artifact import Model, load_like
from cosda.models.masks import MaskedNetwork
from cosda.models.network import to_device
from cosda.models.statistics import set_statistics, statistics, statistics_lent
from cosda.randomness import stream
from cosda.records.folder import RunFolder
from cosda.records.run import Run, read_run
from cosda.records.selection import Candidate
from cosda.records.writers import Log
from cosda.run.carry import Carry, State
from cosda.run.checkpoint import load_checkpoint, save_checkpoint
from cosda.run.edges import check_edges, open_edges
from cosda.run.environment import open_arithmetic, write_environment
from cosda.run.measure import Confusions, Measurer
from cosda.run.prepare import EVALUATION_BATCH, Machine, prepare
from cosda.run.shared_folder import open_folder
from cosda.run.source import new_model, source_model, trained_part
from cosda.run.train import Epoch, Training
from cosda.run.validators import Selector, predict
from cosda.watch import Watcher


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
    watcher = watcher if watcher and collectives.is_main() else Watcher()
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
        if METHODS.find(plan.method).source_settings:
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
        self.measurer = Measurer(
            self.plan, self.domains, self.model.preprocessing, self.folder, self.device, self.watcher
        )
        network = trained_part(self.model.network, self.plan)
        self.student = to_device(network, self.device).requires_grad_(True)
        saved = load_checkpoint(self._checkpoint)
        first = int(saved["stage"]) if saved else 1
        if saved is None:
            self.folder.rewind(0)
            self._close_stage(0, {})
        else:  # take the model that the stage began with; the method may need it to set itself up
            began = self._model_before(first)
            self.model.network.load_state_dict(began.network.state_dict())  # the student's weights are among these
            self.model = replace(self.model, lineage=began.lineage)
            self.folder.rewind(saved["records"])
        method = self.plan.make_method()
        for stage in range(first, len(self.plan.domains)):
            self._adapt(stage, method, saved)
            saved = None
        self.folder.finish(select=self.plan.select, stages=len(self.plan.domains) - 1)

    def _model_before(self, stage: int) -> Model:
        """What the stage before handed on."""
        try:
            return load_like(model_path(self.folder.path, stage - 1), self.model)
        except CosdaError as error:
            advice = f"Or delete {self.folder.path} to start from its beginning."
            raise CosdaError(f"this run cannot go on where it stopped: {error} {advice}") from None

    def _adapt(self, stage: int, method: Method, saved: Any) -> None:
        target = self.plan.domains[stage]
        for key, value in self.plan.make_method(target).settings().items():
            setattr(method, key, value)
        settings = self.plan.section("adapt", target)
        images = open_loader(
            self.domains[target].without_labels(), "train", self.model.preprocessing, self.device,
            settings.batch_size, self.plan.seed, settings.epoch_images,
            open_edges(settings, settings.epochs, self.domains[target], self.device),
        )  # fmt: skip
        incoming = copy.deepcopy(self.student)
        before = statistics(incoming)
        carry = Carry(settings, {"network": incoming.state_dict(), "own": before, "merged": before})
        kind = method.native_statistics if settings.statistics == "native" else settings.statistics
        name = f"{self.plan.label} → {target}"
        student = self.student.for_domain(target)
        selector = Selector(self.plan.select, incoming.for_domain(target), self._judged(target), settings.validate)
        same = np.array_equal(selector.loader.positions, self.domains[target].test)
        training = Training(method, student, images, settings, self.plan.seed, stage, name, self.watcher)
        adapted: Confusions = {}  # of the model that the rule would choose now, where they were measured

        def checkpoint() -> None:
            state = {"stage": stage, "training": training.state_dict(), "best": selector.best, "mean": carry.mean}
            save_checkpoint(self._checkpoint, {**state, "records": self.folder.length()})
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
                # In the transductive protocol images that are judged and measured are the same: look at them once.
                seen = predict(predictor.for_domain(target), selector.loader) if same else None
                found = {target: self.measurer.confusion(predictor, target, seen)}
                accuracy = self.measurer.record(found[target], stage, facts.epoch, target)
                if settings.measure == "source":
                    source = self.plan.domains[0]
                    found[source] = self.measurer.confusion(predictor, source)
                    self.measurer.record(found[source], stage, facts.epoch, source)
                scores = selector.scores(predictor.for_domain(target), seen)
            if scores:
                judged = {"epoch": facts.epoch, "images": len(selector.loader), "scores": scores}
                self.folder.append("validation", stage=stage, **judged)
            selector.consider(Candidate(facts.epoch, accuracy, scores), model)
            if selector.best is None or selector.best["epoch"] == facts.epoch:
                adapted.update(found)
            carry.follow(model)
            checkpoint()

        def predictions(state: State) -> Tensor:
            self._take(state, kind)
            return predict(student, selector.loader)

        if saved is None:
            checkpoint()
        else:
            training.load_state_dict(saved["training"])
            selector.best, carry.mean = saved["best"], saved["mean"]
        training.run(after_epoch)
        if stage == 1:  # the source model's; not at the beginning, so that training begins at once
            self.measurer.embed(incoming, 0)
        best = selector.best or {"epoch": settings.epochs - 1 if settings.epochs else None, "model": model()}
        self.folder.append("chosen", stage=stage, rule=self.plan.select, epoch=best["epoch"])
        handed, carried = carry.hand_on(best["model"], predictions)
        self.folder.append("carried", stage=stage, **carried)
        self._take(handed, kind)
        step = {"step": "adapt", "domain": target, "method": self.plan.method, "variant": self.plan.variant}
        facts = {"seed": self.plan.seed, "epochs": settings.epochs, "settings": method.settings()}
        rule = {"select": self.plan.select, "epoch": best["epoch"], "carry": settings.carry, "share": carried["share"]}
        self.model = replace(self.model, lineage=[*self.model.lineage, {**step, **facts, **rule}])
        self._close_stage(stage, {} if carried["share"] else adapted)
        other = "own" if kind == "merged" else "merged"
        if handed[other]:  # part of all forgetting is in the statistics
            with statistics_lent(self.student, handed[other]):
                self.measurer.with_other_statistics(self.student, stage, other)

    def _take(self, state: State, kind: str) -> None:
        """Let the student be a model that the stage kept."""
        self.student.load_state_dict(state["network"])
        set_statistics(self.student, state[kind])

    def _close_stage(self, stage: int, known: Confusions) -> None:
        """Save what the stage hands on, and measure it; what is ``known`` of this very model is not measured again."""
        self.model.save(model_path(self.folder.path, stage), overwrite=True, link=True)
        self.measurer.everywhere(self.student, stage, known)

    def _judged(self, target: str) -> Loader:
        """The images that validators see: those of training, without labels."""
        domain = self.domains[target].without_labels()
        return open_loader(domain, "train", self.model.preprocessing, self.device, EVALUATION_BATCH, self.plan.seed)

    @property
    def _checkpoint(self) -> Path:
        return self.folder.path / "checkpoint" / "last.safetensors"


def carried_path(run: Run, stage: int | None = None) -> Path:
    """Where the model lies that a stage of a run handed on; the last one unless a stage is given."""
    return model_path(run.path, len(run.domains) - 1 if stage is None else stage)


def model_path(folder: Path, stage: int) -> Path:
    """Where a run's folder holds the model that a stage handed on."""
    return folder / "models" / f"stage-{stage}"
