"""The table of all chains: means over the orders of each seed that has them all, then over seeds."""

from __future__ import annotations

from pathlib import Path

import pytest
from cells import cell_of
from stored_runs import WriteRun

from cosda import metrics
from cosda.records.run import find_runs
from cosda.report.model.groups import group_runs
from cosda.report.model.table import Table
from cosda.report.tables.chains import chain_tables
from cosda.report.tables.contents import contents

MATRIX = [[90, 50, 40], [80, 70, 45], [75, 65, 60]]
BETTER = [[90, 50, 40], [88, 80, 50], [86, 78, 70]]
ORDERS = (["print", "outline", "hand"], ["print", "hand", "outline"])


@pytest.fixture
def table(make_run: WriteRun, tmp_path: Path) -> Table:
    for seed in (0, 1):
        for number, order in enumerate(ORDERS):
            shifted = [[value - number - 2 * seed for value in row] for row in MATRIX]
            make_run(tmp_path / f"nrc-{seed}-{number}", shifted, label="nrc", seed=seed, domains=order)
    make_run(tmp_path / "aad-0", BETTER, label="aad", seed=0, domains=ORDERS[0])
    make_run(tmp_path / "pair", [[90, 50], [80, 70]], label="nrc", seed=0, domains=["print", "hand"])
    (found,) = chain_tables(group_runs(find_runs([tmp_path])).sections)
    return found


def test_means_are_taken_over_chains_and_then_over_seeds(table: Table) -> None:
    row = next(row for row in table.rows if row.name == "nrc")
    average = cell_of(table, "nrc", "Average")
    whole = metrics.average_accuracy(MATRIX) / 100
    assert average.values == pytest.approx((whole - 0.005, whole - 0.025))
    assert cell_of(table, "nrc", "BWT").mean == pytest.approx(-(15 + 5) / 2 / 100)
    assert row.seeds == "2"
    assert len(row.cells[0].runs) == 4


def test_a_method_without_all_chains_has_no_mean(table: Table) -> None:
    row = next(row for row in table.rows if row.name == "aad")
    assert row.seeds == "0 of 1"
    assert {cell.reason for cell in row.cells} == {"no seed has all the chains"}
    assert not any(cell.best for cell in row.cells)


def test_a_report_shows_the_table_and_names_the_chains(table: Table, tmp_path: Path) -> None:
    shown = next(found for found in contents(find_runs([tmp_path])).across if found.kind == "chains")
    assert shown.rows == table.rows
    assert "2 chains" in shown.notes[0]
    assert "print → hand → outline" in shown.notes[0]


def test_a_row_has_one_name_on_all_chains(make_run: WriteRun, tmp_path: Path) -> None:
    for number, order in enumerate(ORDERS):
        make_run(tmp_path / f"nrc-{number}", MATRIX, label="nrc", domains=order, settings={"adapt": {"lr": 0.1}})
    # On this chain alone one setting is as frequent as the other.
    make_run(tmp_path / "other", BETTER, label="nrc", domains=ORDERS[0], settings={"adapt": {"lr": 0.2}})
    (table,) = chain_tables(group_runs(find_runs([tmp_path])).sections)
    assert [(row.name, row.seeds) for row in table.rows] == [("nrc", "1"), ("nrc [adapt.lr=0.2]", "0 of 1")]
