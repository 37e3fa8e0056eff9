"""Rules that choose an epoch, from records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosda.errors import CosdaError
from cosda.records.run import Run
from cosda.records.selection import Candidate, candidates, choose, judge, reselect, rules, spearman

ACCURACY = (60, 80, 70)  # of the target, of 100 images, epoch by epoch
SOURCE = (95, 90, 85)
INFORMATION = (0.2, 0.9, 0.9)  # a tie: the later one counts
ENTROPY = (-0.1, -0.5, -0.9)  # prefers the first, and falls while accuracy rises


def accuracy(domain: str, epoch: int | None, correct: int, stage: int = 1) -> dict[str, Any]:
    where = {"stage": stage, "epoch": epoch, "domain": domain, "split": "test"}
    return {"kind": "accuracy", **where, "images": [50, 50], "correct": [50, correct - 50]}


def stored(domains: tuple[str, ...] = ("a", "b"), source_curve: bool = True, scores: bool = True) -> Run:
    records = [accuracy(name, None, 96, stage=0) for name in domains]
    for epoch in range(3):
        records.append({"kind": "loss", "stage": 1, "epoch": epoch, "terms": {}})
        records.append(accuracy("b", epoch, ACCURACY[epoch]))
        if source_curve:
            records.append(accuracy("a", epoch, SOURCE[epoch]))
        if scores:
            found = {"information": INFORMATION[epoch], "entropy": ENTROPY[epoch]}
            records.append({"kind": "validation", "stage": 1, "epoch": epoch, "images": 9, "scores": found})
    records.append({"kind": "chosen", "stage": 1, "rule": "last", "epoch": 2})
    records += [accuracy("a", None, 85), accuracy("b", None, 70)]
    records.append({"kind": "alternative", "statistics": "merged", **accuracy("b", None, 71) | {"kind": "alternative"}})
    config = {"kind": "adapt", "domains": list(domains), "headline": "top1", "select": "last", "label": "x", "seed": 0}
    return Run(Path("run"), config, tuple(records), (), {"stages": 1})


@pytest.mark.parametrize(("rule", "epoch"), [("last", 2), ("oracle", 1), ("information", 2), ("entropy", 0)])
def test_a_rule_chooses_its_epoch(rule: str, epoch: int) -> None:
    assert choose(rule, candidates(stored(), 1)).epoch == epoch


def test_a_redrawn_run_has_the_accuracies_of_the_chosen_epoch() -> None:
    redrawn = reselect(stored(), "oracle")
    assert redrawn.matrix() == [[0.96, 0.96], [0.90, 0.80]]
    assert redrawn.summary()["select"] == "oracle"
    assert [r["epoch"] for r in redrawn.of("chosen")] == [1]
    assert not list(redrawn.of("alternative")), "what was measured of another epoch's model says nothing of this one"
    assert stored().matrix() == [[0.96, 0.96], [0.85, 0.70]], "the run itself stays as it is"


def test_regret_and_rank_correlation() -> None:
    judged = {j.rule: j for j in judge(stored(), 1)}
    assert set(judged) == {"last", "information", "entropy", "oracle"}, "rules without scores are not judged"
    assert judged["oracle"].regret == 0
    assert judged["last"].regret == pytest.approx(0.1)
    assert judged["entropy"].regret == pytest.approx(0.2)
    assert judged["information"].correlation == pytest.approx(0.8660254, abs=1e-6)  # ranks 1, 2.5, 2.5 and 1, 3, 2
    assert judged["entropy"].correlation == pytest.approx(-0.5)
    assert judged["last"].correlation is None


def test_what_cannot_be_redrawn_says_why() -> None:
    with pytest.raises(CosdaError, match=r"run it with --select oracle"):
        reselect(stored(("a", "b", "c")), "oracle")
    with pytest.raises(CosdaError, match="no accuracy of the source"):
        reselect(stored(source_curve=False), "oracle")
    with pytest.raises(CosdaError, match="no 'snd' for some epochs"):
        reselect(stored(), "snd")
    with pytest.raises(CosdaError, match="Did you mean"):
        reselect(stored(), "orcale")
    banked = stored()
    carried = {"kind": "carried", "stage": 1, "rule": "bank", "share": 0.0}
    with pytest.raises(CosdaError, match=r"not the model of an epoch \(carry 'bank'\)"):
        reselect(Run(banked.path, banked.config, (*banked.records, carried), (), {}), "oracle")
    untrained = stored()
    kept = tuple(r for r in untrained.records if r["kind"] != "loss")
    assert reselect(Run(untrained.path, untrained.config, kept, (), {}), "snd").matrix() == untrained.matrix()


def test_spearman_is_that_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    pairs = [([1, 5, 2, 2, 9], [3, 3, 1, 7, 8]), ([0.1, 0.2, 0.3], [3, 2, 1])]
    for first, second in pairs:
        assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)
    assert spearman([1, 1], [1, 2]) is None


def test_a_candidate_without_labels_has_no_worth_for_the_oracle() -> None:
    assert Candidate(0, None, {}).worth("oracle") is None
    assert rules()[0] == "last"
    assert rules()[-1] == "oracle"
