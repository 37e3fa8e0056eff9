"""Many runs: what is expanded, what goes on after a failure, what is not done twice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cosda.errors import CosdaError
from cosda.methods import METHODS
from cosda.run.bench import expand, run_jobs
from tiny import tiny_benchmark

QUICK = ("epochs=1", "source.epochs=1", "network.bottleneck=8")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tiny benchmark of feature vectors as a file, which workers can open."""
    path = tmp_path_factory.mktemp("vectors") / "tiny.npz"
    arrays = {}
    for domain in tiny_benchmark(features=True):
        assert domain.labels is not None
        for split, positions in (("train", domain.train), ("test", domain.test)):
            arrays[f"{domain.name}_{split}_features"] = domain.items[positions]  # type: ignore[index]
            arrays[f"{domain.name}_{split}_labels"] = domain.labels[positions]
    np.savez(path, **arrays)
    return str(path)


def test_all_pairs_and_the_default_chain(vectors: str) -> None:
    jobs = expand(vectors, "source,cosda", "all", "default", seeds=2)
    assert len(jobs) == 2 * (6 + 1) * 2
    assert len(set(jobs)) == len(jobs)
    assert {job.domains for job in jobs if len(job.domains) == 3} == {("one", "two", "three")}
    assert {job.method for job in expand(vectors, "all", "one>two")} == set(METHODS)


def test_named_pairs_and_chains(vectors: str) -> None:
    jobs = expand(vectors, "bn", "one>two, two>one", "three>one>two")
    assert [job.domains for job in jobs] == [("one", "two"), ("two", "one"), ("three", "one", "two")]


def test_the_variant_is_left_out_where_a_method_has_none(vectors: str) -> None:
    jobs = expand(vectors, "source,cosda", "one>two", variant="authors")
    assert [job.variant for job in jobs] == [None, "authors"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"methods": "cosdas", "pairs": "all"}, "Did you mean 'cosda'"),
        ({"pairs": "one>twoo"}, "Did you mean 'two'"),
        ({"pairs": "one"}, "source>target"),
        ({}, "nothing to run"),
    ],
)
def test_wrong_requests(vectors: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(CosdaError, match=said):
        expand(vectors, **options)  # type: ignore[arg-type]


def test_a_failing_run_does_not_stop_the_others(vectors: str, tmp_path: Path) -> None:
    good = expand(vectors, "source,cosda", "one>two", changes=QUICK)
    bad = expand(vectors, "cosda", "one>two", changes=(*QUICK, "lr=1e30", "lr_end=1e30"))
    outcome = run_jobs([*bad, *good], tmp_path, workers=2)
    assert [run.label for run in outcome.runs] == ["source", "cosda"]
    assert list(outcome.failed) == bad
    assert "became unusable" in outcome.failed[bad[0]]
    assert "Traceback" not in outcome.failed[bad[0]]
    stamps = {path: path.stat().st_mtime_ns for run in outcome.runs for path in run.path.rglob("*")}
    again = run_jobs(good, tmp_path, workers=1)
    assert {path: path.stat().st_mtime_ns for run in again.runs for path in run.path.rglob("*")} == stamps
