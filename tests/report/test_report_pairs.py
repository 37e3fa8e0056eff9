"""The table of all pairs, from runs made here: averages over pairs for each seed, then mean and spread over seeds."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_runs import HOSTILE, WriteRun

from cosda import metrics
from cosda.api import run_chain
from cosda.records.run import Run, find_runs
from cosda.report import render_report
from cosda.report.grids import Entry, Grid
from cosda.report.pairs import pair_grids
from cosda.report.tables import build
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


def column_of(grid: Grid, row: str, title: str) -> tuple[Entry, Entry]:
    """Accuracy and drop of a row in a column."""
    place = [heading.title for heading in grid.columns].index(title)
    accuracy, drop = next(line for line in grid.rows if line.name == row).entries[place]
    return accuracy, drop


def grid_of(folder: Path) -> Grid:
    (grid,) = pair_grids(build(find_runs([folder])).sections)
    return grid


def test_averages_are_taken_over_pairs_and_then_over_seeds(folder: Path) -> None:
    runs = [run for run in find_runs([folder]) if run.label == "nrc"]
    expected = []
    for seed in (0, 1):
        matrices = [run.matrix() for run in runs if run.seed == seed]
        expected.append(sum(m[1][1] for m in matrices) / 2)  # type: ignore[index]
    accuracy, _ = column_of(grid_of(folder), "nrc", "average")
    assert accuracy.cell.values == pytest.approx(expected)
    assert accuracy.cell.mean == pytest.approx(metrics.mean(expected))
    assert len(accuracy.runs) == 4


def test_the_other_statistics_stand_beside(folder: Path) -> None:
    _, drop = column_of(grid_of(folder), "nrc", "average, other statistics")
    others = [run.matrix(other=True) for run in find_runs([folder]) if run.label == "nrc"]
    assert drop.cell.mean == pytest.approx(metrics.mean([m[0][0] - m[1][0] for m in others]))  # type: ignore[index]
    assert others != [run.matrix() for run in find_runs([folder]) if run.label == "nrc"]


def test_a_method_that_misses_a_pair_has_no_average(folder: Path) -> None:
    grid = grid_of(folder)
    found = [column_of(grid, "bn", title)[0].cell for title in ("O2T", "T2O", "average")]
    assert [cell.mean is None for cell in found] == [False, True, True]
    assert [cell.reason for cell in found] == ["", "no run", "no seed has all the pairs"]
    text = render_report(find_runs([folder]), "md")
    assert "tiny: all pairs" in text
    assert "| T2O | O2T | average |" in text
    assert "O: one, T: two." in text


def test_an_average_is_of_the_seeds_that_have_every_pair(paper_runs: list[Run]) -> None:
    (grid,) = pair_grids(build(paper_runs).sections)
    accuracy, drop = column_of(grid, "nrc", "average")  # seed 1 was interrupted on webcam to amazon
    assert accuracy.cell.values == pytest.approx([(92 + 91 + 75 + 98 + 74 + 100) / 600])
    assert drop.cell.values == pytest.approx([(10 + 9 + 11 + 0 + 8 + 0) / 600])
    assert next(line for line in grid.rows if line.name == "nrc").seeds == "1 of 2"
    assert column_of(grid, "nrc", "D2A")[0].cell.values == pytest.approx([0.75, 0.74])


def test_the_papers_numbers_stand_beside(paper_runs: list[Run]) -> None:
    (grid,) = pair_grids(build(paper_runs).sections)
    accuracy, drop = column_of(grid, "cosda", "A2D")
    assert (accuracy.published, drop.published) == (0.8675, 0.0103)
    assert accuracy.difference == pytest.approx(0.865 - 0.8675)
    assert column_of(grid, "cosda", "average")[0].published == pytest.approx(0.8731, abs=5e-5)  # printed under Avg.
    missing = column_of(grid, "cosda+nrc", "W2D")[0]
    assert (missing.cell.mean, missing.published, missing.difference) == (None, 1.0, None)


def test_the_source_model_takes_no_part_in_the_drop(paper_runs: list[Run]) -> None:
    (grid,) = pair_grids(build(paper_runs).sections)
    assert not column_of(grid, "source", "average")[1].best
    assert column_of(grid, "cosda (no-mi)", "average")[1].best
    assert not [c for c in grid.comparisons if c.measure == "drop" and "source" in (c.row, c.reference)]


def test_columns_go_by_target_as_in_the_paper(paper_runs: list[Run]) -> None:
    (grid,) = pair_grids(build(paper_runs).sections)
    assert [heading.title for heading in grid.columns] == ["D2A", "W2A", "A2D", "W2D", "A2W", "D2W", "average"]


DOMAINNET = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")


def test_very_many_pairs_stand_as_in_table_1(tmp_path: Path, make_run: WriteRun) -> None:
    """Pairs go down by target with an average for each, methods across, accuracy | drop in a cell."""
    for i, (source, target) in enumerate((a, b) for a in DOMAINNET for b in DOMAINNET if a != b):
        for label, matrix in (("source", [[80, 30]] * 2), ("cosda", [[80, 30], [80 - i % 3, 40 + i]])):
            place = {"benchmark": "domainnet", "domains": [source, target]}
            make_run(tmp_path / f"{label}-{source}-{target}", matrix, label=label, **place)
    runs = find_runs([tmp_path])
    (grid,) = pair_grids(build(runs).sections)
    titles = [heading.title for heading in grid.columns]
    assert titles[:7] == ["I2C", "P2C", "Q2C", "R2C", "S2C", "average, clipart", "C2I"]
    assert titles[-2:] == ["average, sketch", "average"]
    averages = [column_of(grid, "cosda", title)[0] for title in titles if title.startswith("average, ")]
    assert column_of(grid, "cosda", "average")[0].cell.mean == pytest.approx(
        metrics.mean([entry.cell.mean or 0 for entry in averages])
    )
    printed = [entry.published for entry in column_of(grid, "cosda", "average, clipart")]
    assert printed == pytest.approx([0.4861, 0.0801], abs=5e-5)  # under Avg. in the paper
    text = render_report(runs, "md")
    assert "| pair |  | source | cosda |" in text
    assert "| I2C | ours | 30.00 \\| 0.00 | **45.00** \\| 2.00 |" in text
    assert "|  | paper | 30.46 (-0.46) | 41.57 (+3.43) \\| 6.02 (-4.02) |" in text


def test_a_pair_with_other_images_is_another_column(tmp_path: Path, make_run: WriteRun) -> None:
    for fingerprint in ("aa", "bb"):
        make_run(tmp_path / fingerprint, HOSTILE[0], label="bn", domains=["x", "y"], fingerprint=fingerprint)
    assert [heading.title for heading in grid_of(tmp_path).columns] == ["X2Y (aa)", "X2Y (bb)", "average"]
