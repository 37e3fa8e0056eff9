"""The table of all pairs, from runs made here: averages over pairs for each seed, then mean and spread over seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosda import metrics
from cosda.records import find_runs
from cosda.report import render_report
from cosda.report.pairs import pair_tables
from cosda.report.tables import build
from cosda.run.api import run_chain
from tiny import tiny_benchmark

QUICK = ("epochs=2", "source.epochs=3", "network.bottleneck=8", "lr=0.1")
PAIRS = (["one", "two"], ["two", "one"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pairs")
    for seed in (0, 1):
        for pair in PAIRS:
            run_chain(tiny_benchmark(features=True), "nrc", domains=pair, changes=QUICK, seed=seed, out=out)
    run_chain(tiny_benchmark(features=True), "bn", domains=PAIRS[0], changes=QUICK, out=out)
    return out


def test_averages_are_taken_over_pairs_and_then_over_seeds(folder: Path) -> None:
    runs = [run for run in find_runs([folder]) if run.label == "nrc"]
    expected = []
    for seed in (0, 1):
        matrices = [run.matrix() for run in runs if run.seed == seed]
        expected.append(sum(m[1][1] for m in matrices) / 2)  # type: ignore[index]
    (table,) = pair_tables(build(find_runs([folder])).sections)
    row = next(row for row in table.rows if row.name == "nrc")
    assert row.average.accuracy.values == pytest.approx(expected)
    assert row.average.accuracy.mean == pytest.approx(metrics.mean(expected))


def test_the_other_statistics_stand_beside(folder: Path) -> None:
    (table,) = pair_tables(build(find_runs([folder])).sections)
    row = next(row for row in table.rows if row.name == "nrc")
    others = [run.matrix(other=True) for run in find_runs([folder]) if run.label == "nrc"]
    assert row.other_average.drop.mean == pytest.approx(metrics.mean([m[0][0] - m[1][0] for m in others]))  # type: ignore[index]
    assert others != [run.matrix() for run in find_runs([folder]) if run.label == "nrc"]


def test_a_method_that_misses_a_pair_has_no_average(folder: Path) -> None:
    (table,) = pair_tables(build(find_runs([folder])).sections)
    row = next(row for row in table.rows if row.name == "bn")
    assert [pair.accuracy.mean is None for pair in row.pairs] == [False, True]
    assert row.average.accuracy.mean is None
    text = render_report(find_runs([folder]), "md")
    assert "tiny: all pairs" in text
    assert "| one → two | two → one | average |" in text
