"""One target of a run, in the order in which things happen: train, choose an epoch, hand a model on, measure it."""

from __future__ import annotations

import copy
import datetime
from typing import Any

import numpy as np
from torch import Tensor

from cosda.carry import State
from cosda.errors import Diverged
from cosda.methods import Method
from cosda.models.network import Network
from cosda.models.statistics import set_statistics, statistics, statistics_lent
from cosda.records.folder import RunFolder
from cosda.records.selection import Candidate
from cosda.run.checkpoint import Checkpoint
from cosda.run.judge import Judge
from cosda.run.measure import Confusions, Measurer
from cosda.run.prepare import Prepared
from cosda.run.profile import Look
from cosda.run.selector import Selector, predict
from cosda.run.train import Epoch, Training


class Stage:
    """Adapts the network of a prepared run, or an expert of it, to one target."""

    def __init__(
        self, prepared: Prepared, number: int, method: Method, folder: RunFolder, judge: Judge | None = None
    ) -> None:
        plan = prepared.plan
        self.judge = judge or Judge()
        self.stopped: str | None = None  # why training was ended before its last epoch
        self.diverged = False  # whether that was because its numbers meant nothing any more
        self.plan, self.folder, self.method = plan, folder, method
        self.measurer = Measurer(prepared, folder)
        self.number, self.target = number, plan.data.domains[number]
        self.settings = plan.adapt(self.target)
        self.checkpoint = Checkpoint(folder)
        for key, value in plan.make_method(self.target).settings().items():
            setattr(method, key, value)
        kind = self.settings.statistics
        self.statistics = method.native_statistics if kind == "native" else kind

        domain = prepared.domains[self.target]
        judged = prepared.loader(domain.without_labels(), "train", plan.seed)
        self.rule = self.settings.carry_rule
        self.whole, self.look = prepared.model.network, Look(self.target, prepared.frozen, judged, prepared.watcher)
        self.network, self.began_from = self.rule.student(prepared.network, self.look, self.settings.begin)
        self.network.requires_grad_(True)
        self.incoming = copy.deepcopy(self.network)
        self.selector = Selector(plan.select, self.incoming.for_domain(self.target), judged, self.settings.validate)
        # In the transductive protocol the images that are judged and measured are the same: look at them once.
        self.judged_are_measured = np.array_equal(self.selector.images.positions, domain.test)
        self.training = Training(
            method,
            self.network.for_domain(self.target),
            prepared.training_loader(domain, self.settings),
            self.settings,
            plan.seed,
            number,
            f"{plan.label} → {self.target}",
            prepared.watcher,
        )
        before = statistics(self.incoming)
        self.began: State = {"network": self.incoming.state_dict(), "own": before, "merged": before}
        self.along = self.rule.begin(self.began)
        self.measured: Confusions = {}  # of the model that would be chosen now, where it was measured after its epoch

    def resume(self, saved: Any) -> None:
        """Go on where a checkpoint of this stage was taken; without one, take the first."""
        if saved is None:
            self._save()
            return
        self.training.load_state_dict(saved["training"])
        self.selector.best, self.along, self.stopped = saved["best"], saved["along"], saved["stopped"]
        self.diverged = saved["diverged"]

    def train(self) -> None:
        """Train the epochs that are left; each is measured, scored and recorded."""
        if self.stopped is not None:
            return
        try:
            self.training.run(self._after_epoch)
        except Diverged as error:
            if not self.judge.stops:
                raise
            self.stopped, self.diverged = str(error), True
            self._save()

    def choose(self) -> tuple[int | None, State]:
        """The epoch that the run's rule prefers, and its model; the last one where the rule kept none."""
        if self.diverged:  # there is no model but the one that it began with
            best: dict[str, Any] = {"epoch": None, "model": self.began}
        else:
            last = self.training.epoch - 1 if self.training.epoch else None
            best = self.selector.best or {"epoch": last, "model": self._adapted()}
        self.folder.append("chosen", stage=self.number, rule=self.plan.select, epoch=best["epoch"])
        return best["epoch"], best["model"]

    def hand_on(self, adapted: State) -> tuple[Network, dict[str, Any]]:
        """What the carry rule makes of the incoming and the adapted model: the whole network, and the record."""
        self.handed, facts = self.rule.hand_on(self.began, adapted, self.along, self._predict)
        carried = {"rule": self.settings.carry.partition("=")[0], **self.began_from, **facts}
        self.folder.append("carried", stage=self.number, **carried)
        self._take(self.handed)
        if facts["share"] or self.rule.enlarges:
            self.measured = {}  # of the adapted model, which this one is not
        return self.rule.keep(self.whole, self.network, self.look), carried

    def lineage(self, epoch: int | None, carried: dict[str, Any]) -> dict[str, Any]:
        """What the saved model tells of this stage."""
        return {
            "step": "adapt",
            "domain": self.target,
            "method": self.plan.method,
            "variant": self.plan.variant,
            "seed": self.plan.seed,
            "epochs": self.settings.epochs,
            "settings": self.method.settings(),
            "select": self.plan.select,
            "epoch": epoch,
            "carry": carried["rule"],
            **{key: value for key, value in carried.items() if key in ("share", "began", "bits")},
            "images": len(self.look),
            "date": datetime.date.today().isoformat(),
        }

    def measure(self, handed: Network) -> None:
        """Measure what was handed on, on all domains; and once more with the other kind of BatchNorm statistics."""
        self.measurer.everywhere(handed, self.number, self.measured)
        if self.rule.enlarges:
            self.measurer.expert(handed.for_domain(self.target), self.number, self.target)
            return
        other = "own" if self.statistics == "merged" else "merged"
        if self.handed[other]:  # part of all forgetting is in the statistics
            with statistics_lent(self.network, self.handed[other]):
                self.measurer.with_other_statistics(self.network, self.number, other)

    def _after_epoch(self, facts: Epoch) -> bool:
        predictor = self.method.predictor(self.target)
        self.training.check_sound(predictor)
        self.folder.append_epoch(self.number, facts.recorded, facts.timing)
        with statistics_lent(predictor, self.training.statistics(self.statistics, predictor)):
            candidate, found = self._look(predictor, facts.epoch)
        self.selector.consider(candidate, self._adapted)
        if self.selector.best is None or self.selector.best["epoch"] == facts.epoch:
            self.measured.update(found)
        if self.along is not None:
            self.along = self.rule.follow(self.along, self._adapted(), self.settings.epochs)
        self._save()
        return self.stopped is not None

    def _look(self, predictor: Network, epoch: int) -> tuple[Candidate, Confusions]:
        """Measure and score the model of an epoch."""
        own = predictor.for_domain(self.target)
        seen = predict(own, self.selector.images) if self.judged_are_measured else None
        found: Confusions = {self.target: self.measurer.confusion(predictor, self.target, seen)}
        accuracy = self.measurer.record(found[self.target], self.number, epoch, self.target)
        if self.settings.measure == "source":
            source = self.plan.source
            found[source] = self.measurer.confusion(predictor, source)
            self.measurer.record(found[source], self.number, epoch, source)
        if self.judge.stops and len(self.selector.images):
            seen = predict(own, self.selector.images) if seen is None else seen
            self.stopped = self.judge.epoch(seen)
        scores = self.selector.scores(own, seen)
        if scores:
            judged = {"epoch": epoch, "images": len(self.selector.images), "scores": scores}
            self.folder.append("validation", stage=self.number, **judged)
        return Candidate(epoch, accuracy, scores), found

    def _save(self) -> None:
        self.checkpoint.save(
            stage=self.number,
            training=self.training.state_dict(),
            best=self.selector.best,
            along=self.along,
            stopped=self.stopped,
            diverged=self.diverged,
        )

    def _adapted(self) -> dict[str, Any]:
        """A copy of what the method would hand on now, with both kinds of BatchNorm statistics."""
        predictor = self.method.predictor(self.target)
        network = {key: value.detach().clone() for key, value in predictor.state_dict().items()}
        kinds = {kind: self.training.statistics(kind, predictor) for kind in ("own", "merged")}
        return {"network": network, **kinds}

    def _predict(self, state: State) -> Tensor:
        self._take(state)
        return predict(self.training.student, self.selector.images)

    def _take(self, state: State) -> None:
        """Let the network be a model that the stage kept."""
        self.network.load_state_dict(state["network"])
        set_statistics(self.network, state[self.statistics])
