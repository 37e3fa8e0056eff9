"""The verdict on an adaptation: what is looked at, when, and what follows from it."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from cosda.data.domain import Domain
from cosda.data.loader import Loader
from cosda.data.pictures import picture
from cosda.distributed import collectives
from cosda.files import write_atomically, write_json
from cosda.judge.evidence import compared, distance, estimators, kept_by_router, moved, same
from cosda.judge.fitted import UNCALIBRATED, fitted
from cosda.judge.guard import Guard, unfit_images
from cosda.judge.looking import Answers, look
from cosda.judge.stand_ins import drawn, stand_ins
from cosda.models.calibration import Calibration
from cosda.models.experts import SOURCE, DomainBank
from cosda.models.network import Network
from cosda.models.profile import binned
from cosda.records.folder import RunFolder
from cosda.records.verdict import FOLDER, Checked, JudgedImage, Said, Verdict, Word, read_verdict
from cosda.run.evaluate import told
from cosda.run.judge import Judge
from cosda.run.prepare import Prepared
from cosda.run.selector import sample
from cosda.validators import scores

MOST = 2000  # images that are judged
SHOWN = 24  # images of each kind that somebody should look at
SIGNIFICANT = 0.05  # p-value below which a difference on labelled images counts


@dataclass
class Judging(Judge):
    """Gives a verdict on an adaptation and writes it into the run folder; stops a training that cannot end well."""

    images: Domain  # the new domain as the user gave it, of which pictures are made
    stops = True
    before: Answers | None = field(default=None, init=False)
    guard: Guard | None = field(default=None, init=False)
    known: _Known | None = field(default=None, init=False)

    def begin(self, prepared: Prepared, target: str) -> str | None:
        """Look at the images with the incoming model; what cannot be adapted to is said before any training."""
        network = told(prepared.network, target)
        self.loader = _judged(prepared, target)
        profile = network.base.profile
        self.calibration = profile.calibration if profile else None
        unfit = unfit_images(self.loader, len(prepared.plan.data.classes))
        if unfit is None:
            self.before = look(network, self.loader)
            self.guard = Guard(self.before.classes)
            self.far = distance(network, self.loader, prepared.frozen)
            self.incoming = network if isinstance(network, DomainBank) else copy.deepcopy(network)  # a bank stays
            settings = prepared.plan.adapt(target)
            self.steps = settings.epochs * prepared.training_loader(prepared.domains[target], settings).steps
            if not settings.carry_rule.enlarges:
                self.known = _Known.of(network, self.loader, profile.name if profile else SOURCE)
        return unfit

    def epoch(self, probabilities: Tensor) -> str | None:
        """A reason to stop after an epoch."""
        assert self.guard is not None
        return self.guard.stop(probabilities)

    def end(self, prepared: Prepared, folder: RunFolder, stopped: str | None) -> None:
        """Compare the model that is handed on with the incoming one, and write down what follows."""
        plan, target = prepared.plan, prepared.plan.targets[-1]
        facts = Verdict(
            verdict="rejected",
            reasons=(stopped,) if stopped else (),
            decided_by="guard",
            domain=target,
            images=len(self.loader),
            classes=plan.data.classes,
            method=plan.method,
            select=plan.select,
        )
        if self.before is None:
            return _write(folder.path, facts, {})
        network = told(prepared.network, target)
        after = look(network, self.loader)
        calibration = self.calibration or UNCALIBRATED
        kept = self.known.agreement(network) if self.known else {}
        routed = kept_by_router(network, target) if isinstance(network, DomainBank) else {}
        agreement = ({self.known.name: min(kept.values())} if self.known and kept else {}) | routed
        evidence = gathered(self.before, after, calibration) | {
            "kept": kept.get("kept", 1.0),
            "drawn": kept.get("drawn", 1.0),
            "routed": min(routed.values(), default=1.0),
            "distance": self.far,
            "moved": moved(self.incoming, network, target, self.steps),
        }
        facts = replace(
            facts,
            before=self._said(self.before, evidence, "before"),
            after=self._said(after, evidence, "after"),
            changed=1 - evidence["agreement"],
            agreement={target: evidence["agreement"], **agreement},
            risk=fitted().risk(evidence),
            evidence=evidence,
        )
        if not stopped:
            facts = decided(facts, known=bool(agreement), calibrated=self.calibration is not None)
        _write(folder.path, facts, self._pictures(prepared, target, after))

    def _said(self, answers: Answers, evidence: Mapping[str, float], when: str) -> Said:
        assert self.before is not None
        confidence = answers.probabilities.max(dim=1).values
        return Said(
            classes=tuple(torch.bincount(answers.classes, minlength=answers.logits.shape[1]).tolist()),
            confidence=float(confidence.mean()),
            confidences=tuple(binned(confidence).tolist()),
            estimate=fitted().accuracy(evidence, when) if self.calibration else None,
            scores=scores(answers.probabilities, self.before.classes),
        )

    def _pictures(self, prepared: Prepared, target: str, after: Answers) -> dict[JudgedImage, bytes | None]:
        """Images that somebody should look at, with their thumbnails: changed ones first, the most confident first."""
        assert self.before is not None
        classes = prepared.plan.data.classes
        p, q = self.before.probabilities, after.probabilities
        (was, old), (now, new) = p.max(dim=1), q.max(dim=1)
        moved = (old != new).nonzero()[:, 0]
        moved = moved[now[moved].argsort(descending=True)][:SHOWN]
        unsure = now.argsort()[:SHOWN]
        skipped = {name for name, _ in prepared.skipped.get(target, ())}
        readable = [place for place, name in enumerate(self.images.names) if name not in skipped]
        found: dict[JudgedImage, bytes | None] = {}
        for why, chosen in (("changed", moved.tolist()), ("unsure", unsure.tolist())):
            for row in chosen:
                place = readable[int(self.loader.positions[row])]
                content = picture(self.images, place)
                one = JudgedImage(
                    image=self.images.names[place],
                    why=why,  # type: ignore[arg-type]
                    before=classes[int(old[row])],
                    before_probability=float(was[row]),
                    after=classes[int(new[row])],
                    after_probability=float(now[row]),
                    thumbnail=f"{len(found)}.jpg" if content else None,
                )
                found[one] = content
        return found


@dataclass
class _Known:
    """What stands in for the images that a model without a bank knew, and what it said of them."""

    name: str
    images: dict[str, Tensor]  # by the number that they give
    logits: dict[str, Tensor]

    @classmethod
    def of(cls, network: Network, loader: Loader, name: str) -> _Known:
        like = next(iter(loader.sweep("test"))).images
        made = {"kept": stand_ins(network, like, loader.seed), "drawn": drawn(network.profile, like, loader.seed)}
        images = {kind: some for kind, some in made.items() if some is not None}
        return cls(name, images, {kind: said_of(network, some) for kind, some in images.items()})

    def agreement(self, network: Network) -> dict[str, float]:
        """The share of each kind that an adapted model still takes for the same class."""
        return {
            kind: same(said_of(network, images).argmax(dim=1), self.logits[kind].argmax(dim=1))
            for kind, images in self.images.items()
        }


@torch.no_grad()
def said_of(network: Network, images: Tensor) -> Tensor:
    """Logits (N, C) of inputs at hand."""
    return copy.deepcopy(network).eval().forward(images).logits


def _judged(prepared: Prepared, target: str) -> Loader:
    domain = prepared.domains[target].without_labels()
    return sample(prepared.loader(domain, "train", prepared.plan.seed), MOST)


def gathered(before: Answers, after: Answers, calibration: Calibration) -> dict[str, float]:
    """What two models say of the same images, in numbers by name."""
    seen = {
        f"{name}, {when}": value
        for when, answers in (("before", before), ("after", after))
        for name, value in estimators(answers, calibration).items()
    }
    images, classes = before.logits.shape
    return {**seen, **compared(before, after), "images per class": math.log10(images / classes)}


def decided(facts: Verdict, known: bool, calibrated: bool) -> Verdict:
    """The verdict that follows from the evidence.

    ``known`` says whether anything stood in for what the model knew, ``calibrated`` whether the model was. Without
    them there is nothing that could carry more than a doubt.
    """
    assert facts.risk is not None
    rules = fitted()
    word = rules.word(facts.risk, facts.evidence)
    reasons = list(rules.reasons(facts.evidence, calibrated))
    if word == "accepted" and not calibrated:
        word = "doubtful"
        reasons.append(
            "the model was never calibrated, so its accuracy cannot be estimated; "
            "'cosda profile MODEL FOLDER --labelled' does that"
        )
    if word == "accepted" and not known:
        word = "doubtful"
        reasons.append("nothing stands in for the images that the model knew, so nobody can tell what it forgot")
    if word == "accepted":
        reasons.insert(
            0, f"nothing speaks against it: the risk that more than two points were lost is {facts.risk:.0%}"
        )
    else:
        reasons.insert(0, f"the risk that more than two points were lost is {facts.risk:.0%}")
    return replace(facts, verdict=word, reasons=tuple(reasons), decided_by="estimates")


def with_check(facts: Verdict, check: Checked) -> Verdict:
    """The verdict once labelled images were looked at: they decide, unless the guard had to stop the training."""
    facts = replace(facts, check=check)
    if facts.decided_by == "guard":
        return facts
    told = f"{check.better} of {check.after.images} labelled images are right only now, {check.worse} only before"
    if check.p_value >= SIGNIFICANT:
        word: Word = "doubtful" if check.worse > check.better else "accepted"
        told += f": no difference that chance could not make (p = {check.p_value:.2g})"
    else:
        word = "accepted" if check.better > check.worse else "rejected"
        told += f" (p = {check.p_value:.2g})"
    return replace(facts, verdict=word, reasons=(told, *facts.reasons), decided_by="check")


def record_check(run: Path, check: Checked) -> Verdict:
    """Add labelled images to the verdict of a run folder."""
    found = read_verdict(run)
    assert found is not None
    checked = with_check(found, check)
    write_json(run / FOLDER / "verdict.json", checked.as_json())
    return checked


def _write(run: Path, facts: Verdict, pictures: Mapping[JudgedImage, bytes | None]) -> None:
    """The verdict and the images, whole or not at all."""
    if not collectives.is_main():
        return

    def fill(folder: Path) -> None:
        folder.mkdir()
        write_json(folder / "verdict.json", facts.as_json())
        write_json(folder / "images.json", [one.as_json() for one in pictures])
        for one, content in pictures.items():
            if one.thumbnail and content:
                (folder / one.thumbnail).write_bytes(content)

    write_atomically(run / FOLDER, fill)
