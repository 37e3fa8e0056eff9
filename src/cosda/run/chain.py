"""A run: source model, then one target after the other, all domains measured after each.

A run may be killed at any moment. It goes on after the last finished epoch, and ends with the bits of a run that
was never disturbed: what is recorded or saved after a checkpoint is cut off and done again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cosda.config.plan import Plan
from cosda.data.domain import Domain
from cosda.errors import CosdaError
from cosda.files import check_folder
from cosda.models.artifact import Model, load_like
from cosda.records.folder import RunFolder
from cosda.records.run import Run, read_whole_run
from cosda.records.writers import Log
from cosda.run.checkpoint import Checkpoint
from cosda.run.environment import write_environment
from cosda.run.judge import Judge
from cosda.run.machine import Machine
from cosda.run.measure import Measurer
from cosda.run.prepare import Prepared, main_watcher, prepare
from cosda.run.shared_folder import open_folder
from cosda.run.source import is_trained, source_model
from cosda.run.stage import Stage
from cosda.watch import Watcher

CHECKPOINT = 2  # times the size of what is trained, at least: the student and its momentum


def execute(
    plan: Plan,
    domains: Mapping[str, Domain],
    runs: Path,
    machine: Machine | None = None,
    watcher: Watcher | None = None,
    model: Model | None = None,
    judge: Judge | None = None,
) -> Run:
    """Do a run, or what is left of it; a finished one is only read.

    ``model`` is a source model to start from; without it one is trained on the first domain. A domain of the chain
    that has no data here (the source of a given model) is not measured. A ``judge`` may end a training early.
    """
    machine = machine or Machine()
    machine.join()
    watcher = main_watcher(watcher)
    with open_folder(runs / plan.name, plan.as_json(), machine.patience) as folder:
        if folder.finished:
            watcher.note(f"{folder.path} is finished; nothing to do")
        else:
            with prepare(plan, domains, machine, watcher, model) as prepared:
                write_environment(folder, prepared.device, prepared.network.arithmetic)
                prepared.announce(model is None and not is_trained(plan, runs))
                if model is None:
                    prepared = prepared.with_model(source_model(prepared, runs))
                with Log(folder, machine.log, watcher):
                    _adapt(prepared, folder, judge or Judge())
    return read_whole_run(folder.path)


def _adapt(prepared: Prepared, folder: RunFolder, judge: Judge) -> None:
    """All stages, or those that are left."""
    plan = prepared.plan
    measurer = Measurer(prepared, folder)
    saved = Checkpoint(folder).load()
    first = int(saved["stage"]) if saved else 1
    if saved is None:
        for name, images in prepared.skipped.items():
            folder.append("skipped", stage=0, domain=name, images=dict(images))
        _save(prepared.model, folder, 0)
        measurer.everywhere(prepared.network, 0, {})
    else:  # take the model that the stage began with; the method may need it to set itself up
        prepared = prepared.with_model(_handed_on(folder, first - 1, prepared.model))
    _check_room(prepared, folder, len(plan.data.domains) - first)
    method = plan.make_method()
    for number in range(first, len(plan.data.domains)):
        unfit = judge.begin(prepared, plan.data.domains[number])
        stage = Stage(prepared, number, method, folder, judge)
        stage.resume(saved)
        saved = None
        stage.stopped = stage.stopped or unfit
        stage.train()
        if number == 1:  # the source model's; not at the beginning, so that training begins at once
            stage.measurer.embed(stage.incoming, 0)
        epoch, adapted = stage.choose()
        whole, carried = stage.hand_on(adapted)
        lineage = [*prepared.model.lineage, stage.lineage(epoch, carried)]
        prepared = prepared.with_model(replace(prepared.model, network=whole, lineage=lineage))
        _save(prepared.model, folder, number)
        stage.measure(prepared.network)
        judge.end(prepared, folder, stage.stopped)
    folder.finish(select=plan.select, stages=len(plan.targets))


def _check_room(prepared: Prepared, folder: RunFolder, stages: int) -> None:
    """Say before training that the disk is too full for its checkpoint and the models of the stages that are left."""
    trained = sum(value.nbytes for value in prepared.network.state_dict().values())
    rules = [prepared.plan.adapt(target).carry_rule for target in prepared.plan.targets[-stages:]]
    whole = sum(not rule.enlarges for rule in rules)  # an expert of a bank is small
    check_folder(folder.path, needed=trained * (CHECKPOINT + whole))


def _save(model: Model, folder: RunFolder, stage: int) -> None:
    model.origin = model.save(model_path(folder.path, stage), overwrite=True, link=True)  # the next one links to this


def _handed_on(folder: RunFolder, stage: int, like: Model) -> Model:
    """What an earlier stage handed on."""
    try:
        return load_like(model_path(folder.path, stage), like)
    except CosdaError as error:
        advice = f"Or delete {folder.path} to start from its beginning."
        raise CosdaError(f"this run cannot go on where it stopped: {error} {advice}") from None


def carried_path(run: Run, stage: int | None = None) -> Path:
    """Where the model lies that a stage of a run handed on; the last one unless a stage is given."""
    return model_path(run.path, len(run.domains) - 1 if stage is None else stage)


def model_path(folder: Path, stage: int) -> Path:
    """Where a run's folder holds the model that a stage handed on."""
    return folder / "models" / f"stage-{stage}"
