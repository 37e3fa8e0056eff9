"""The paper's claims as orders: over two seeds of the embedded benchmark, and on real images where at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosda import metrics
from cosda.api import run_chain
from cosda.bench.demo import CHAIN
from cosda.bench.jobs import Job
from cosda.bench.run import run_jobs
from cosda.config.request import Request
from cosda.records.run import Run
from tiny import read

SEEDS = 2
OFFICE31 = Path(__file__).parents[3] / "shared" / "data" / "office31"


def mean_of(runs: list[Run], label: str, number: str) -> float:
    values = [run.summary()[number] for run in runs if run.label == label]
    assert len(values) == SEEDS
    return metrics.mean(values)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """The chain of `make demo`, by those methods of which something is claimed here."""
    rows = [("source", None), ("bn", None), ("nrc", None), ("cosda", None), ("cosda", "no-dual-speed")]
    # What is looked at after each epoch changes no model.
    options = {"settings": {"adapt.measure": "target", "adapt.validate": 0}}
    jobs = [
        Job("digits", Request.of(method, CHAIN, ablation=ablation, seed=seed, **options))  # type: ignore[arg-type]
        for method, ablation in rows
        for seed in range(SEEDS)
    ]
    outcome = run_jobs(jobs, tmp_path_factory.mktemp("demo"))
    assert not outcome.failed
    return outcome.runs


def test_the_source_model_loses_at_least_15_points_on_some_target(demo: list[Run]) -> None:
    for run in demo:
        first = run.summary()["accuracy"][0]
        assert first[0] - min(first) > 0.15


def test_cosda_is_better_on_all_seen_domains_than_both_baselines(demo: list[Run]) -> None:
    ours = mean_of(demo, "cosda", "average")
    assert ours > mean_of(demo, "source", "average")
    assert ours > mean_of(demo, "bn", "average")


def test_without_dual_speed_targets_are_learnt_and_the_source_is_forgotten(demo: list[Run]) -> None:
    """The second row of the paper's ablation: adaptation hardly suffers, forgetting is severe."""
    without = "cosda (no-dual-speed)"
    assert mean_of(demo, without, "adaptation") > mean_of(demo, "cosda", "adaptation") - 0.02
    assert mean_of(demo, without, "source_drop") > mean_of(demo, "cosda", "source_drop") + 0.05
    assert mean_of(demo, without, "bwt") < mean_of(demo, "cosda", "bwt") - 0.05


def test_nrc_adapts_better_and_forgets_more(demo: list[Run]) -> None:
    """The trade-off that the paper's first figure shows."""
    assert mean_of(demo, "nrc", "adaptation") > mean_of(demo, "cosda", "adaptation")
    assert mean_of(demo, "nrc", "bwt") < mean_of(demo, "cosda", "bwt")


@pytest.mark.skipif(not OFFICE31.is_dir(), reason=f"needs the Office-31 images in {OFFICE31}")
def test_real_images_in_feature_mode(tmp_path: Path) -> None:
    """Features of small images (96 px), so that they are computed in half a minute."""
    pytest.importorskip("efficientnet_lite_pytorch")
    changes = ("network.encoder=lite0", "network.freeze_encoder=true", "data.size=96")
    runs = {
        method: run_chain(OFFICE31, method, domains=["dslr", "webcam"], settings=read(changes), out=tmp_path).summary()
        for method in ("source", "cosda")
    }
    assert runs["source"]["accuracy"][0][0] > 0.95
    assert runs["cosda"]["adaptation"] > runs["source"]["adaptation"]
    assert runs["cosda"]["source_drop"] < 0.05
