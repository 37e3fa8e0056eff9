"""What a verdict rests on, and what follows from it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cosda
from cosda.judge.check import compare
from cosda.judge.fitted import Fitted, Trees, fitted, scaled, unscaled
from cosda.judge.verdict import decided, with_check
from cosda.models.network import same_weights
from cosda.records.verdict import read_images, read_verdict
from cosda.run.chain import carried_path
from tiny import read, tiny_benchmark, tiny_domain

SMALL = ("source.epochs=8", "network.encoder=small", "data.size=16", "network.bottleneck=8", "source.lr=0.05")
QUICK = {"epochs": 2, "batch_size": 8}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> cosda.Model:
    out = tmp_path_factory.mktemp("source")
    return cosda.train_source(tiny_benchmark(), "one", settings=read(SMALL), out=out).model


def facts(**changes: object) -> cosda.Verdict:
    whole = cosda.Verdict("rejected", (), "estimates", "two", 30, ("a", "b", "c"), "aad", "last")
    return replace(whole, **changes)  # type: ignore[arg-type]


# --- What was fitted --------------------------------------------------------------------------------------------------


def test_trees_are_walked_from_the_root_to_a_leaf() -> None:
    tree = (
        ("kept", 0.5, 1, 2, 0.0),
        ("", 0.0, -1, -1, 2.0),
        ("routed", 0.9, 3, 4, 0.0),
        *([("", 0.0, -1, -1, 7.0)] * 2),
    )
    last = (*tree[:4], ("", 0.0, -1, -1, -1.0))
    harm = Trees(0.25, (last, last[1:2]))
    assert harm({"kept": 0.5, "routed": 1.0}) == 0.25 + 2 + 2
    assert harm({"kept": 0.6, "routed": 0.9}) == 0.25 + 7 + 2
    assert harm({"kept": 0.6, "routed": 0.95}) == 0.25 - 1 + 2


@pytest.mark.parametrize("share", [0.005, 0.3, 0.9])
def test_log_odds_go_back_to_shares(share: float) -> None:
    assert unscaled(scaled("kept", share)) == pytest.approx(share)
    assert scaled("distance", 1.7) == 1.7


def test_what_was_fitted_is_read_as_it_was_written() -> None:
    assert Fitted.from_json(json.loads(json.dumps(fitted().as_json()))) == fitted()
    assert 0 < fitted().accept < fitted().reject < 1


# --- What follows -----------------------------------------------------------------------------------------------------


def evidence_of(verdict: cosda.Verdict | None) -> Mapping[str, float]:
    assert verdict is not None
    return verdict.evidence


def usual() -> dict[str, float]:
    """Numbers as they are in good adaptations, which raise the estimated accuracy."""
    others = {name: 0.1 if "before" in name else 0.9 for name in {*fitted().before.weights, *fitted().after.weights}}
    return others | {name: low if math.isfinite(low) else high for name, (low, high) in fitted().usual.items()}


@pytest.mark.parametrize(
    ("risk", "known", "calibrated", "word"),
    [
        (0.0, True, True, "accepted"),
        (0.0, False, True, "doubtful"),
        (0.0, True, False, "doubtful"),
        (1.0, True, True, "rejected"),
        (1.0, False, False, "rejected"),
    ],
)
def test_what_cannot_be_known_is_never_accepted(risk: float, known: bool, calibrated: bool, word: str) -> None:
    found = decided(facts(risk=risk, evidence=usual()), known, calibrated)
    assert found.verdict == word
    assert found.reasons


@pytest.mark.parametrize("name", sorted(fitted().usual))
def test_nothing_unusual_is_accepted(name: str) -> None:
    odd = usual()
    odd[name] += -0.01 if math.isfinite(fitted().usual[name][0]) else 0.01
    found = decided(facts(risk=0.0, evidence=odd), known=True, calibrated=True)
    assert found.verdict == "doubtful"
    assert len(found.reasons) == 2, "the risk, and what is unusual"


def test_a_falling_estimate_is_not_accepted() -> None:
    falling = {name: 0.95 if "before" in name else 0.7 for name in usual()}
    falling |= {"distance": 0.0, "images per class": 10.0, "moved": usual()["moved"]}
    found = decided(facts(risk=0.0, evidence=falling), known=True, calibrated=True)
    assert found.verdict == "doubtful"
    assert found.reasons[1].startswith("the estimated accuracy falls from ")
    assert len(decided(facts(risk=0.0, evidence=falling), known=True, calibrated=False).reasons) == 1


@pytest.mark.parametrize(("better", "worse", "word"), [(20, 2, "accepted"), (2, 20, "rejected"), (3, 4, "doubtful")])
def test_labelled_images_decide(better: int, worse: int, word: str) -> None:
    before = np.array([True] * worse + [False] * better + [True] * 20)
    after = np.array([False] * worse + [True] * better + [True] * 20)
    found = with_check(facts(verdict="doubtful", reasons=("estimates",)), compare(before, after))
    assert (found.verdict, found.decided_by) == (word, "check")
    assert f"{better} of {len(before)} labelled images are right only now, {worse} only before" in found.reasons[0]
    assert found.reasons[-1] == "estimates"


def test_a_stopped_training_stays_rejected_whatever_labels_say() -> None:
    stopped = facts(decided_by="guard", reasons=("it fell together.",))
    found = with_check(stopped, compare(np.zeros(30, bool), np.ones(30, bool)))
    assert (found.verdict, found.decided_by) == ("rejected", "guard")
    assert found.check is not None


# --- Adaptations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("validate", [0, 7])
def test_more_images_than_are_looked_at_after_each_epoch(model: cosda.Model, validate: int) -> None:
    """As in a domain of more than a thousand: the guard sees a part of what the verdict sees, or nothing."""
    settings = {"epochs": 4, "batch_size": 8, "adapt.validate": validate}
    found = cosda.adapt(model, tiny_domain("two", seed=1), "aad", settings=settings).verdict
    assert found is not None
    assert found.images == 20
    assert found.before is not None
    assert len(found.before.classes) == 3


def test_an_adaptation_leaves_its_verdict_and_images(model: cosda.Model, tmp_path: Path) -> None:
    result = cosda.adapt(model, tiny_benchmark()["two"], "aad", out=tmp_path, check=tiny_benchmark()["two"], **QUICK)
    verdict = read_verdict(result.run.path)
    assert verdict == result.verdict
    assert verdict is not None
    assert verdict.before is not None
    assert sum(verdict.before.classes) == verdict.images == len(tiny_benchmark()["two"].train)
    assert verdict.before.estimate is not None
    assert verdict.before.estimate.low <= verdict.before.estimate.accuracy <= verdict.before.estimate.high
    assert result.check is not None
    assert verdict.check is not None
    assert verdict.check.after.correct == sum(result.check.after.correct)
    assert set(verdict.agreement) == {"two", "one"}
    assert all((result.run.path / "verdict" / str(one.thumbnail)).is_file() for one in read_images(result.run.path))
    assert result.model.lineage[-1]["verdict"]["verdict"] == verdict.verdict


def test_labels_change_nothing_of_the_evidence(model: cosda.Model) -> None:
    domain = tiny_benchmark()["two"]
    seen, unlabelled = (
        evidence_of(cosda.adapt(model, given, "nrc", **QUICK).verdict)
        for given in (domain.with_labels_shuffled(1), domain.without_labels())
    )
    assert seen == unlabelled


def test_a_training_that_diverges_is_rejected_and_hands_on_the_incoming_model(
    model: cosda.Model, tmp_path: Path
) -> None:
    rates = {"lr": 1e30, "lr_end": 1e30}
    result = cosda.adapt(model, tiny_benchmark()["two"], "aad", out=tmp_path, settings=rates, **QUICK)
    assert result.verdict is not None
    assert (result.verdict.verdict, result.verdict.decided_by) == ("rejected", "guard")
    assert same_weights(cosda.load(carried_path(result.run)).network, model.network)


def test_too_few_images_are_rejected_before_any_training(model: cosda.Model, tmp_path: Path) -> None:
    few = tiny_domain("few", count=12)
    result = cosda.adapt(model, replace(few, train=few.train, labels=None), "aad", out=tmp_path, **QUICK)
    assert result.verdict is not None
    assert result.verdict.verdict == "rejected"
    assert "8 images for 3 classes" in result.verdict.reasons[0]
    assert not list(result.run.of("loss"))


def test_a_bank_is_judged_by_its_router(model: cosda.Model) -> None:
    verdict = cosda.adapt(model, tiny_domain("two", count=60, seed=1), "aad", carry="bank", **QUICK).verdict
    assert verdict is not None
    assert verdict.evidence["kept"] == 1
    assert verdict.evidence["routed"] == verdict.agreement["one"]


def test_runs_of_a_benchmark_have_no_guard(model: cosda.Model, tmp_path: Path) -> None:
    run = cosda.run_chain(tiny_benchmark(), "aad", model=model, out=tmp_path, **QUICK)
    assert read_verdict(run.path) is None
