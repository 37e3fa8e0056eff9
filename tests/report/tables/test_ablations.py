"""Tables of ablations, with cells computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from cells import cell_of, sections_of, titles_of
from stored_runs import COSDA, NO_DUAL_SPEED, OFFICE_RUNS, WriteRun

from cosda.records.run import Run, find_runs
from cosda.report.model.groups import group_runs
from cosda.report.tables.ablations import ablation_tables


def test_ablations_over_all_pairs(paper_runs: list[Run]) -> None:
    (table,) = ablation_tables(sections_of(paper_runs, "office31"))
    assert [row.name for row in table.rows] == ["cosda", "cosda (no-mi)"]
    means = {
        name: [sum(pair[0] for pair in OFFICE_RUNS[name][seed] if pair) / 600 for seed in (0, 1)]
        for name in ("cosda", "cosda (no-mi)")
    }
    assert cell_of(table, "cosda", "accuracy").values == pytest.approx(means["cosda"])
    change = cell_of(table, "cosda (no-mi)", "accuracy, change")
    assert change.values == pytest.approx([b - a for a, b in zip(means["cosda"], means["cosda (no-mi)"], strict=True)])
    assert change.published == pytest.approx(0.8459 - 0.8731, abs=1e-4)
    assert cell_of(table, "cosda", "accuracy, change").reason == "this is the whole method"
    (accuracy, drop) = table.tests
    assert (accuracy.row, accuracy.reference, accuracy.values) == ("cosda (no-mi)", "cosda", 12)
    assert (accuracy.column, drop.column) == ("accuracy, change", "drop, change")


def test_ablations_of_a_chain(runs: list[Run]) -> None:
    (table,) = ablation_tables(sections_of(runs, "digits"))
    assert titles_of(table) == [
        "accuracy", "drop", "BWT", "accuracy, change", "drop, change", "BWT, change"
    ]  # fmt: skip
    # Right after adapting: cosda 80, 74 and 84, 76; without dual speed 78, 72 and 80, 74.
    assert cell_of(table, "cosda", "accuracy").values == pytest.approx((0.77, 0.80))
    assert cell_of(table, "cosda (no-dual-speed)", "accuracy, change").values == pytest.approx((-0.02, -0.03))
    # Drops: 2 and 1; 36 and 30.
    assert cell_of(table, "cosda (no-dual-speed)", "drop, change").values == pytest.approx((0.34, 0.29))


def test_an_ablation_is_compared_over_the_pairs_that_both_have(tmp_path: Path, make_run: WriteRun) -> None:
    for target, last in (("b", 70), ("c", 90)):
        make_run(tmp_path / f"whole-{target}", [[90, 50], [90, last]], label="cosda", domains=["a", target])
    make_run(tmp_path / "part", [[90, 50], [80, 60]], label="cosda (no-mi)", domains=["a", "b"])
    (table,) = ablation_tables(group_runs(find_runs([tmp_path])).sections)
    assert cell_of(table, "cosda", "accuracy").values == (0.7,)
    assert cell_of(table, "cosda (no-mi)", "drop, change").values == pytest.approx((0.1,))


def test_an_ablation_without_the_whole_has_no_table(tmp_path: Path, make_run: WriteRun) -> None:
    make_run(tmp_path / "part", NO_DUAL_SPEED[0], label="cosda (no-dual-speed)")
    assert ablation_tables(group_runs(find_runs([tmp_path])).sections) == []
    for rate in (1, 2):  # and with two of them, none is the whole
        make_run(tmp_path / f"whole-{rate}", COSDA[0], label="cosda", settings={"adapt": {"lr": rate}})
    assert ablation_tables(group_runs(find_runs([tmp_path])).sections) == []
