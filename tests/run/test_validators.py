"""Label-free scores against slow loops, and the model that a rule hands on."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cosda import api
from cosda.api import run_chain
from cosda.errors import CosdaError
from cosda.models.network import Network
from cosda.records.run import Run
from cosda.records.selection import candidates, choose, reselect, rules
from cosda.run import selector
from cosda.run.chain import carried_path
from cosda.validators import VALIDATORS, scores
from tiny import read, tiny_benchmark, tiny_domain, tiny_loader, tiny_network

QUICK = (
    *("epochs=3", "batch_size=8", "adapt.lr=0.05", "source.epochs=1", "source.batch_size=8"),
    *("network.encoder=small", "network.bottleneck=8", "data.size=16"),
)


def predictions(count: int = 7, classes: int = 4, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, classes, generator=generator, dtype=torch.float64).mul(2).softmax(dim=1)


def test_all_scores_against_loops() -> None:
    p = predictions()
    rows = p.tolist()
    count, classes = p.shape
    before = torch.tensor([0, 1, 2, 3, 0, 1, 2])

    def entropy(q: list[float]) -> float:
        return -sum(x * math.log(x) for x in q if x > 0)

    mean = [sum(row[c] for row in rows) / count for c in range(classes)]
    certainty = -sum(entropy(row) for row in rows) / count
    density = 0.0
    for i in range(count):
        similarity = []
        for j in range(count):
            if i != j:
                dot = sum(a * b for a, b in zip(rows[i], rows[j], strict=True))
                lengths = math.dist(rows[i], [0] * classes) * math.dist(rows[j], [0] * classes)
                similarity.append(math.exp(dot / lengths / 0.05))
        density += entropy([x / sum(similarity) for x in similarity]) / count
    singular = np.linalg.svd(np.array(rows), compute_uv=False).sum()
    agree = sum(max(range(classes), key=row.__getitem__) == b for row, b in zip(rows, before.tolist(), strict=True))
    wanted = {
        "information": entropy(mean) + certainty,
        "snd": density,
        "nuclear_norm": singular / math.sqrt(count * classes),
        "entropy": certainty,
        "agreement": agree / count,
    }
    got = scores(p, before)
    assert list(got) == list(VALIDATORS)
    assert got == pytest.approx(wanted, abs=1e-12)


def test_the_extremes() -> None:
    sure = torch.eye(4, dtype=torch.float64).repeat(3, 1)
    got = scores(sure, sure.argmax(dim=1))
    assert got["nuclear_norm"] == pytest.approx(1)
    assert got["information"] == pytest.approx(math.log(4))
    assert got["entropy"] == 0
    assert got["agreement"] == 1
    assert scores(sure[:1], torch.zeros(1))["snd"] == 0, "one image has no neighbours"


def test_a_sample_stays_the_same() -> None:
    loader = tiny_loader(count=20)
    assert selector.sample(loader, 20) is loader
    first, second = selector.sample(loader, 7), selector.sample(loader, 7)
    assert first.positions.tolist() == second.positions.tolist()
    assert len(set(first.positions.tolist())) == 7
    assert selector.sample(replace(loader, seed=5), 7).positions.tolist() != first.positions.tolist()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """One pair under every rule."""
    out = tmp_path_factory.mktemp("runs")
    return {
        rule: run_chain(
            tiny_benchmark(), "nrc", domains=("one", "two"), settings=read(QUICK), select=rule, out=out, seed=1
        )
        for rule in rules()
    }


def test_every_epoch_is_judged_and_both_domains_measured(runs: dict[str, Run]) -> None:
    run = runs["last"]
    assert [set(r["scores"]) for r in run.of("validation", stage=1)] == [set(VALIDATORS)] * 3
    measured = [(r["epoch"], r["domain"]) for r in run.of("accuracy", stage=1) if r["epoch"] is not None]
    assert measured == [(e, d) for e in range(3) for d in ("two", "one")]
    assert next(run.of("chosen"))["epoch"] == 2


def test_agreement_is_with_the_model_that_the_stage_began_with(runs: dict[str, Run]) -> None:
    run = runs["last"]
    target = tiny_benchmark().domains["two"]
    said = [api.predict(run.path / "models" / f"stage-{stage}", target) for stage in (0, 1)]
    before, after = ([rows[place].class_name for place in target.train] for rows in said)
    agree = sum(a == b for a, b in zip(before, after, strict=True)) / len(before)
    assert [*run.of("validation", stage=1)][-1]["scores"]["agreement"] == pytest.approx(agree)
    assert agree < 1, "a model that did not change shows nothing"


def test_the_incoming_model_is_looked_at_when_first_needed() -> None:
    network, loader = tiny_network(), tiny_loader(count=20)
    chosen = selector.Selector("last", network, loader, 20)
    passes = Network.passes
    assert chosen.scores(network)["agreement"] == 1
    both = Network.passes - passes
    chosen.scores(network)
    assert Network.passes - passes == 1.5 * both, "and once"


def test_a_rule_hands_on_the_model_of_the_epoch_that_it_prefers(runs: dict[str, Run]) -> None:
    chosen = {rule: choose(rule, candidates(run, 1)).epoch for rule, run in runs.items()}
    assert len(set(chosen.values())) > 1, "rules that all choose the same epoch show nothing"
    for rule, run in runs.items():
        assert next(run.of("chosen", stage=1)) == {"kind": "chosen", "stage": 1, "rule": rule, "epoch": chosen[rule]}
        for domain in run.domains:
            then = next(run.of("accuracy", stage=1, epoch=chosen[rule], domain=domain))
            handed = next(run.of("accuracy", stage=1, epoch=None, domain=domain))
            assert then["correct"] == handed["correct"], (rule, domain)


def test_a_run_redrawn_under_a_rule_equals_the_run_made_under_it(runs: dict[str, Run]) -> None:
    for rule, run in runs.items():
        assert reselect(runs["last"], rule).matrix() == run.matrix()


def test_the_next_stage_begins_with_the_chosen_model(tmp_path: Path) -> None:
    by_rule = {
        rule: run_chain(tiny_benchmark(), "nrc", settings=read(QUICK), select=rule, out=tmp_path)
        for rule in ("last", "agreement")
    }
    assert len({next(run.of("chosen", stage=1))["epoch"] for run in by_rule.values()}) == 2
    first_losses = [next(run.of("loss", stage=2, epoch=0))["terms"] for run in by_rule.values()]
    assert first_losses[0] != first_losses[1]


def test_labels_choose_only_for_the_oracle(tmp_path: Path) -> None:
    benchmark = tiny_benchmark()
    bare = {n: d if n == "one" else d.without_labels() for n, d in benchmark.domains.items()}
    unlabelled = replace(benchmark, domains=bare)
    with pytest.raises(CosdaError, match="'oracle' chooses by labels, and 'two' has none"):
        run_chain(unlabelled, "bn", domains=("one", "two"), settings=read(QUICK), select="oracle", out=tmp_path)
    run = run_chain(unlabelled, "nrc", domains=("one", "two"), settings=read(QUICK), select="snd", out=tmp_path, seed=1)
    with pytest.raises(CosdaError, match="reads no labels"):
        api.adapt(carried_path(run), tiny_domain(), select="oracle")
    assert next(run.of("chosen"))["rule"] == "snd"


def test_nothing_to_judge_by(tmp_path: Path) -> None:
    with pytest.raises(CosdaError, match=r"let adapt\.validate be above 0"):
        run_chain(tiny_benchmark(), "nrc", settings=read((*QUICK, "adapt.validate=0")), select="snd", out=tmp_path)
    changes = (*QUICK, "epochs=1", "adapt.validate=0", "adapt.measure=target")
    run = run_chain(tiny_benchmark(), "nrc", domains=("one", "two"), settings=read(changes), out=tmp_path)
    assert not list(run.of("validation"))
    assert [r["domain"] for r in run.of("accuracy", stage=1, epoch=0)] == ["two"]


def test_confusions_are_those_of_the_counts(runs: dict[str, Run]) -> None:
    run = runs["last"]
    for record in run.of("confusion"):
        with np.load(run.path / record["file"]) as file:
            for place, domain in enumerate(run.domains):
                counts = next(run.of("accuracy", stage=record["stage"], epoch=None, domain=domain))
                assert file[f"d{place}"].sum(axis=1).tolist() == counts["images"]
                assert file[f"d{place}"].diagonal().tolist() == counts["correct"]
    assert [r["stage"] for r in run.of("confusion")] == [0, 1]
