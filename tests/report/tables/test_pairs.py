"""The table of all pairs, from runs made here: averages over pairs for each seed, then mean and spread over seeds."""

from __future__ import annotations

from pathlib import Path

import pytest
from cells import both_of, titles_of
from stored_runs import HOSTILE, WriteRun

from cosda import metrics
from cosda.api import run_chain
from cosda.records.run import Run, find_runs
from cosda.report import render_report
from cosda.report.model.groups import group_runs
from cosda.report.model.table import Table
from cosda.report.tables.pairs import pair_tables
from tiny import read, tiny_benchmark

QUICK = ("epochs=2", "source.epochs=3", "network.bottleneck=8", "lr=0.1")
PAIRS = (["one", "two"], ["two", "one"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pairs")
    for seed in (0, 1):
        for pair in PAIRS:
            run_chain(tiny_benchmark(features=True), "nrc", domains=pair, settings=read(QUICK), seed=seed, out=out)
    run_chain(tiny_benchmark(features=True), "bn", domains=PAIRS[0], settings=read(QUICK), out=out)
    return out


def table_of(folder: Path) -> Table:
    (table,) = pair_tables(group_runs(find_runs([folder])).sections)
    return table


def test_averages_are_taken_over_pairs_and_then_over_seeds(folder: Path) -> None:
    runs = [run for run in find_runs([folder]) if run.label == "nrc"]
    expected = []
    for seed in (0, 1):
        matrices = [run.matrix() for run in runs if run.seed == seed]
        expected.append(sum(m[1][1] for m in matrices) / 2)  # type: ignore[index]
    accuracy, _ = both_of(table_of(folder), "nrc", "average")
    assert accuracy.values == pytest.approx(expected)
    assert accuracy.mean == pytest.approx(metrics.mean(expected))
    assert len(accuracy.runs) == 4


def test_the_other_statistics_stand_beside(folder: Path) -> None:
    _, drop = both_of(table_of(folder), "nrc", "average, other statistics")
    others = [run.matrix(other=True) for run in find_runs([folder]) if run.label == "nrc"]
    assert drop.mean == pytest.approx(metrics.mean([m[0][0] - m[1][0] for m in others]))  # type: ignore[index]
    assert others != [run.matrix() for run in find_runs([folder]) if run.label == "nrc"]


def test_a_method_that_misses_a_pair_has_no_average(folder: Path) -> None:
    table = table_of(folder)
    found = [both_of(table, "bn", title)[0] for title in ("O2T", "T2O", "average")]
    assert [cell.mean is None for cell in found] == [False, True, True]
    assert [cell.reason for cell in found] == ["", "no run", "no seed has all the pairs"]
    text = render_report(find_runs([folder]), "md")
    assert "tiny: all pairs" in text
    assert "| T2O | O2T | average |" in text
    assert "O: one, T: two." in text


def test_an_average_is_of_the_seeds_that_have_every_pair(paper_runs: list[Run]) -> None:
    (table,) = pair_tables(group_runs(paper_runs).sections)
    accuracy, drop = both_of(table, "nrc", "average")  # seed 1 was interrupted on webcam to amazon
    assert accuracy.values == pytest.approx([(92 + 91 + 75 + 98 + 74 + 100) / 600])
    assert drop.values == pytest.approx([(10 + 9 + 11 + 0 + 8 + 0) / 600])
    assert next(row for row in table.rows if row.name == "nrc").seeds == "1 of 2"
    assert both_of(table, "nrc", "D2A")[0].values == pytest.approx([0.75, 0.74])


def test_the_papers_numbers_stand_beside(paper_runs: list[Run]) -> None:
    (table,) = pair_tables(group_runs(paper_runs).sections)
    accuracy, drop = both_of(table, "cosda", "A2D")
    assert (accuracy.published, drop.published) == (0.8675, 0.0103)
    assert accuracy.difference == pytest.approx(0.865 - 0.8675)
    assert both_of(table, "cosda", "average")[0].published == pytest.approx(0.8731, abs=5e-5)  # printed under Avg.
    missing = both_of(table, "cosda+nrc", "W2D")[0]
    assert (missing.mean, missing.published, missing.difference) == (None, 1.0, None)


def test_beside_the_papers_numbers_stands_what_network_ours_are_of(tmp_path: Path, make_run: WriteRun) -> None:
    place = {"label": "nrc", "benchmark": "office31", "domains": ["amazon", "dslr"]}
    networks = (
        {"encoder": "resnet50-v1", "weights": "/there/keras.safetensors", "precision": "bf16"},
        {"encoder": "lite0", "weights": None, "freeze_encoder": True, "precision": "32"},
    )
    for number, network in enumerate(networks):
        make_run(tmp_path / str(number), [[80, 30], [79, 40]], seed=number, settings={"network": network}, **place)
    text = render_report(find_runs([tmp_path]), "md")
    assert "trains the whole ResNet-50; here it is lite0, frozen and resnet50-v1 (keras.safetensors), bf16; " in text


def test_the_source_model_takes_no_part_in_the_drop(paper_runs: list[Run]) -> None:
    (table,) = pair_tables(group_runs(paper_runs).sections)
    assert not both_of(table, "source", "average")[1].best
    assert both_of(table, "cosda (no-mi)", "average")[1].best
    assert not [test for test in table.tests if test.measure == "drop" and "source" in (test.row, test.reference)]


def test_columns_go_by_target_as_in_the_paper(paper_runs: list[Run]) -> None:
    (table,) = pair_tables(group_runs(paper_runs).sections)
    assert titles_of(table) == ["D2A", "W2A", "A2D", "W2D", "A2W", "D2W", "average"]


DOMAINNET = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")


def test_very_many_pairs_stand_as_in_table_1(tmp_path: Path, make_run: WriteRun) -> None:
    """Pairs go down by target with an average for each, methods across, accuracy | drop in a cell."""
    for i, (source, target) in enumerate((a, b) for a in DOMAINNET for b in DOMAINNET if a != b):
        for label, matrix in (("source", [[80, 30]] * 2), ("cosda", [[80, 30], [80 - i % 3, 40 + i]])):
            place = {"benchmark": "domainnet", "domains": [source, target]}
            make_run(tmp_path / f"{label}-{source}-{target}", matrix, label=label, **place)
    runs = find_runs([tmp_path])
    (table,) = pair_tables(group_runs(runs).sections)
    titles = titles_of(table)
    assert titles[:7] == ["I2C", "P2C", "Q2C", "R2C", "S2C", "average, clipart", "C2I"]
    assert titles[-2:] == ["average, sketch", "average"]
    averages = [both_of(table, "cosda", title)[0] for title in titles if title.startswith("average, ")]
    assert both_of(table, "cosda", "average")[0].mean == pytest.approx(
        metrics.mean([cell.mean or 0 for cell in averages])
    )
    printed = [cell.published for cell in both_of(table, "cosda", "average, clipart")]
    assert printed == pytest.approx([0.4861, 0.0801], abs=5e-5)  # under Avg. in the paper
    text = render_report(runs, "md")
    assert "| pair |  | source | cosda |" in text
    assert "| I2C | ours | 30.00 \\| 0.00 | **45.00** \\| 2.00 |" in text
    assert "|  | paper | 30.46 (-0.46) | 41.57 (+3.43) \\| 6.02 (-4.02) |" in text


def test_a_pair_with_other_images_is_another_column(tmp_path: Path, make_run: WriteRun) -> None:
    for fingerprint in ("aa", "bb"):
        make_run(tmp_path / fingerprint, HOSTILE[0], label="bn", domains=["x", "y"], fingerprint=fingerprint)
    assert titles_of(table_of(tmp_path)) == ["X2Y (aa)", "X2Y (bb)", "average"]
