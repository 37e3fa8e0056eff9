"""Tables by class, of ablations and of selection rules, with cells computed by hand; reports under another rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_runs import COSDA, NO_DUAL_SPEED, OFFICE_RUNS, WriteRun, office_epochs

from cosda.errors import CosdaError
from cosda.records.run import Run, find_runs
from cosda.report import render_report
from cosda.report.ablations import ablation_grids
from cosda.report.chapters import section_grids
from cosda.report.grids import Entry, Grid
from cosda.report.perclass import class_grids
from cosda.report.rules import rule_grids
from cosda.report.tables import Section, build


def entry_of(grid: Grid, row: str, title: str, measure: int = 0) -> Entry:
    place = [heading.title for heading in grid.columns].index(title)
    return next(line for line in grid.rows if line.name == row).entries[place][measure]


def sections_of(runs: list[Run], benchmark: str, select: str | None = None) -> list[Section]:
    return [section for section in build(runs, select).sections if section.benchmark == benchmark]


# --- Class by class ---------------------------------------------------------------------------------------------------


def test_classes(paper_runs: list[Run]) -> None:
    (grid,) = class_grids(build(paper_runs).sections)
    assert [heading.title for heading in grid.columns] == ["plane", "bcycl", "bus", "average"]
    assert entry_of(grid, "cosda", "plane").cell.values == (19 / 20, 18 / 20)
    assert entry_of(grid, "cosda", "plane", 1).cell.values == pytest.approx((0, 1 / 20))
    assert entry_of(grid, "cosda", "bus", 1).cell.values == pytest.approx((5 / 20, 5 / 20))
    bus = entry_of(grid, "cosda", "bus")
    assert (bus.cell.mean, bus.cell.reason) == (None, "no images of this class are measured")
    # The mean is over the classes that occur, as the headline says.
    assert entry_of(grid, "cosda", "average").cell.values == pytest.approx(((19 + 17) / 40, (18 + 18) / 40))
    assert entry_of(grid, "cosda", "average", 1).cell.values == pytest.approx((5 / 60, 6 / 60))


def test_classes_beside_the_paper(paper_runs: list[Run]) -> None:
    (grid,) = class_grids(build(paper_runs).sections)
    assert [entry_of(grid, "cosda", "plane", j).published for j in range(2)] == [0.9504, 0.0019]
    assert [entry_of(grid, "cosda (no-teacher)", "average", j).published for j in range(2)] == [0.6488, 0.8538]
    assert entry_of(grid, "source", "average", 1).published is None


def test_only_what_is_measured_by_class_has_such_a_table(runs: list[Run]) -> None:
    grids = class_grids(build(runs).sections)
    assert [grid.benchmark for grid in grids] == ['a&b"c']


def test_classes_without_names_are_numbered(tmp_path: Path, make_run: WriteRun) -> None:
    place = {"domains": ["a", "b"], "headline": "per-class", "classes": None}
    make_run(tmp_path / "run", [[[20, 10], [5, 5]], [[15, 10], [10, 5]]], label="nrc", **place)
    (grid,) = class_grids(build(find_runs([tmp_path])).sections)
    assert [heading.title for heading in grid.columns] == ["0", "1", "average"]
    assert [entry.cell.values for entry in grid.rows[0].entries[0]] == [(0.5,), (0.25,)]


# --- Ablations --------------------------------------------------------------------------------------------------------


def test_ablations_over_all_pairs(paper_runs: list[Run]) -> None:
    (grid,) = ablation_grids(sections_of(paper_runs, "office31"))
    assert [row.name for row in grid.rows] == ["cosda", "cosda (no-mi)"]
    means = {
        name: [sum(pair[0] for pair in OFFICE_RUNS[name][seed] if pair) / 600 for seed in (0, 1)]
        for name in ("cosda", "cosda (no-mi)")
    }
    assert entry_of(grid, "cosda", "accuracy").cell.values == pytest.approx(means["cosda"])
    change = entry_of(grid, "cosda (no-mi)", "accuracy, change")
    assert change.cell.values == pytest.approx(
        [b - a for a, b in zip(means["cosda"], means["cosda (no-mi)"], strict=True)]
    )
    assert change.published == pytest.approx(0.8459 - 0.8731, abs=1e-4)
    assert entry_of(grid, "cosda", "accuracy, change").cell.reason == "this is the whole method"
    (accuracy, drop) = grid.comparisons
    assert (accuracy.row, accuracy.reference, accuracy.values) == ("cosda (no-mi)", "cosda", 12)
    assert (accuracy.column, drop.column) == ("accuracy, change", "drop, change")


def test_ablations_of_a_chain(runs: list[Run]) -> None:
    (grid,) = ablation_grids(sections_of(runs, "digits"))
    assert [heading.title for heading in grid.columns] == [
        "accuracy", "drop", "BWT", "accuracy, change", "drop, change", "BWT, change"
    ]  # fmt: skip
    # Right after adapting: cosda 80, 74 and 84, 76; without dual speed 78, 72 and 80, 74.
    assert entry_of(grid, "cosda", "accuracy").cell.values == pytest.approx((0.77, 0.80))
    assert entry_of(grid, "cosda (no-dual-speed)", "accuracy, change").cell.values == pytest.approx((-0.02, -0.03))
    # Drops: 2 and 1; 36 and 30.
    assert entry_of(grid, "cosda (no-dual-speed)", "drop, change").cell.values == pytest.approx((0.34, 0.29))


def test_an_ablation_is_compared_over_the_pairs_that_both_have(tmp_path: Path, make_run: WriteRun) -> None:
    for target, last in (("b", 70), ("c", 90)):
        make_run(tmp_path / f"whole-{target}", [[90, 50], [90, last]], label="cosda", domains=["a", target])
    make_run(tmp_path / "part", [[90, 50], [80, 60]], label="cosda (no-mi)", domains=["a", "b"])
    (grid,) = ablation_grids(build(find_runs([tmp_path])).sections)
    assert entry_of(grid, "cosda", "accuracy").cell.values == (0.7,)
    assert entry_of(grid, "cosda (no-mi)", "drop, change").cell.values == pytest.approx((0.1,))


def test_an_ablation_without_the_whole_has_no_table(tmp_path: Path, make_run: WriteRun) -> None:
    make_run(tmp_path / "part", NO_DUAL_SPEED[0], label="cosda (no-dual-speed)")
    assert ablation_grids(build(find_runs([tmp_path])).sections) == []
    for rate in (1, 2):  # and with two of them, none is the whole
        make_run(tmp_path / f"whole-{rate}", COSDA[0], label="cosda", settings={"adapt": {"lr": rate}})
    assert ablation_grids(build(find_runs([tmp_path])).sections) == []


# --- Selection rules --------------------------------------------------------------------------------------------------


def test_rules_by_hand(paper_runs: list[Run]) -> None:
    (grid,) = rule_grids(build(paper_runs).sections)
    assert [row.name for row in grid.rows] == [
        "last", "information", "snd", "nuclear_norm", "entropy", "agreement", "oracle"
    ]  # fmt: skip
    # 40 finished runs that were trained, each with accuracies t - 3, t + 1, t over its three epochs; in two of them
    # t is 100, and so is the best.
    assert entry_of(grid, "last", "stages").cell.mean == 40
    assert entry_of(grid, "last", "regret").cell.mean == pytest.approx(0.38 / 40)
    assert entry_of(grid, "snd", "regret").cell.mean == 0
    assert entry_of(grid, "entropy", "regret").cell.mean == pytest.approx((38 * 0.04 + 2 * 0.03) / 40)
    assert entry_of(grid, "oracle", "regret").cell.mean == 0
    # Information ranks the epochs 1, 2, 3 and accuracy 1, 3, 2: 1 - 6 * 2 / 24. With the tie 1, 2.5, 2.5 it is
    # sqrt(3) / 2.
    expected = (38 * 0.5 + 2 * 3**0.5 / 2) / 40
    assert entry_of(grid, "information", "rank correlation").cell.mean == pytest.approx(expected)
    assert entry_of(grid, "agreement", "rank correlation").cell.mean is None
    assert entry_of(grid, "last", "rank correlation").cell.reason == "it has no score"


def test_the_oracle_takes_no_part_in_the_contest(paper_runs: list[Run]) -> None:
    (grid,) = rule_grids(build(paper_runs).sections)
    assert [row.name for row in grid.rows if row.entries[0][0].best] == ["snd"]


def test_runs_without_scores_have_no_table(runs: list[Run]) -> None:
    assert rule_grids(build(runs).sections) == []


def test_a_single_epoch_is_no_choice(tmp_path: Path, make_run: WriteRun) -> None:
    epochs = office_epochs(80, 90)[-1:]
    make_run(tmp_path / "run", [[95, 60], [90, 80]], label="nrc", domains=["a", "b"], epochs=epochs)
    assert rule_grids(build(find_runs([tmp_path])).sections) == []


def test_a_report_under_another_rule(paper_runs: list[Run]) -> None:
    for rule, epoch in (("snd", 1), ("entropy", 0), ("last", 2)):
        sections = [s for s in sections_of(paper_runs, "office31", rule) if s.domains == ("amazon", "dslr")]
        (section,) = sections
        assert section.select == rule
        target, source, _ = office_epochs(87, 94)[epoch]
        row = next(row for row in section.rows if row.name == "cosda")
        assert row.matrices[0][1] == pytest.approx([source / 100, target / 100])


def test_a_chain_keeps_its_place_under_another_rule_and_says_why(paper_runs: list[Run]) -> None:
    (section,) = sections_of(paper_runs, "officehome", "snd")
    assert section.select == "snd"
    assert section.rows[0].counted == ()
    assert "chain of several targets" in section.rows[0].problems[0].reason
    text = render_report(paper_runs, "md", "snd")
    assert "officehome: Art → Clipart → Product → Real World (rule: snd)" in text
    assert "run it with --select snd" in text


def test_an_interrupted_run_is_not_chosen_from(paper_runs: list[Run]) -> None:
    (section,) = [s for s in sections_of(paper_runs, "office31", "oracle") if s.domains == ("webcam", "amazon")]
    nrc = next(row for row in section.rows if row.name == "nrc")
    assert [problem.reason[:12] for problem in nrc.problems] == ["not finished"]


def test_a_run_of_old_has_no_scores(runs: list[Run]) -> None:
    found = build(runs, "information").sections
    assert {section.select for section in found} == {"information"}
    hostile = next(section for section in found if len(section.domains) == 2)
    assert "no 'information'" in hostile.rows[0].problems[0].reason


@pytest.mark.parametrize("format", ["md", "csv", "tex"])
def test_an_unknown_rule(runs: list[Run], format: str) -> None:
    with pytest.raises(CosdaError, match=r"unknown selection rule 'orcale'.*Did you mean 'oracle'"):
        render_report(runs, format, "orcale")


# --- Chains -----------------------------------------------------------------------------------------------------------


def test_the_papers_transfer_stands_beside_ours(paper_runs: list[Run]) -> None:
    (section,) = sections_of(paper_runs, "officehome")
    summary = section_grids(section)[0]
    bwt = entry_of(summary, "cosda", "BWT")
    assert (bwt.cell.mean, bwt.published) == (pytest.approx(-0.02), -0.0224)
    assert entry_of(summary, "cosda", "Average").published is None


def test_matrices_hold_every_stage(runs: list[Run]) -> None:
    section = next(s for s in build(runs).sections if len(s.rows) == 4)
    grid = section_grids(section)[-1]
    assert grid.kind == "matrix"
    lines = [row for row in grid.rows if row.name == "bn"]
    assert [row.part for row in lines] == ["source model", "after colour", "after hand"]
    assert [cell[0].cell.values for cell in lines[1].entries] == [(0.90, 0.88), (0.70, 0.72), (0.51, 0.53)]
