"""The numbers of adaptations without labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from stored_runs import ACCEPTED, COSDA, REJECTED, SCRIPT, STOPPED, WriteRun, said, write_adaptation

from cosda.records.run import find_runs
from cosda.records.verdict import FOLDER, Said, Verdict
from cosda.report.model.table import Table
from cosda.report.tables.adaptations import most_moved
from cosda.report.tables.contents import Contents, contents


def contents_of(folder: Path, *verdicts: Verdict) -> Contents:
    for number, verdict in enumerate(verdicts):
        write_adaptation(folder / f"run-{number}", verdict)
    return contents(find_runs([folder]))


def numbers(table: Table, row: str) -> list[float | None]:
    [found] = [one for one in table.rows if one.name == row]
    return [None if cell.mean is None else round(cell.mean, 6) for cell in found.cells]


def test_the_overview_has_a_row_for_each(tmp_path: Path) -> None:
    found = contents_of(tmp_path, ACCEPTED, REJECTED, STOPPED)
    [table] = found.overview
    assert [row.part for row in table.rows] == ["rejected", "accepted", "rejected"]  # one has no model and no date
    assert numbers(table, "hand (run-0)") == [0.61, 0.78, 0.17, 0.03, 0.25, 0.98, None, None]
    assert numbers(table, "hand (run-1)") == [0.61, 0.78, 0.17, 0.03, 0.25, 0.98, 0.85, 0.6]
    assert numbers(table, "hand (run-2)") == [None] * 8
    assert [cell.reason for cell in table.rows[1].cells][-1] == "no labelled images were given"


def test_before_and_after(tmp_path: Path) -> None:
    table = contents_of(tmp_path, REJECTED).judged[0].tables[0]
    assert [row.name for row in table.rows] == [
        "estimated accuracy",
        "by threshold",
        "by views",
        "measured on labelled images",
        "mean confidence",
    ]
    assert numbers(table, "estimated accuracy") == [0.61, 0.54, 0.67, 0.78, 0.71, 0.84, 0.17]
    assert numbers(table, "by threshold") == [0.63, None, None, 0.8, None, None, 0.17]
    assert numbers(table, "measured on labelled images") == [0.85, 0.621, 0.968, 0.6, 0.361, 0.809, -0.25]
    assert numbers(table, "mean confidence") == [0.64, None, None, 0.81, None, None, 0.17]
    assert "20 labelled images: 1 better, 6 worse, p = 0.125." in table.notes[1]


def test_agreement_and_classes(tmp_path: Path) -> None:
    _, agreement, classes, evidence = contents_of(tmp_path, ACCEPTED).judged[0].tables
    assert [(row.name, row.cells[0].mean) for row in agreement.rows] == [
        ("hand (new)", 0.75),
        ("print", 0.99),
        ("colour", 0.98),
    ]
    assert numbers(classes, "0") == [10, 7, -3]
    assert numbers(classes, SCRIPT) == [2, 5, 3]
    assert numbers(evidence, "threshold, after") == [0.8]


def test_of_many_classes_those_that_move_most() -> None:
    before = Said((5, 9, 3, 7), 0.5, (), None)
    after = Said((5, 1, 6, 12), 0.5, (), None)
    assert most_moved(before, after, 2) == [1, 3]
    assert most_moved(before, after) == [0, 1, 2, 3]


def test_a_model_without_a_profile_has_no_estimate(tmp_path: Path) -> None:
    before, after = (replace(said(0.5, 0.6, (5, 5, 10)), estimate=None) for _ in range(2))
    found = contents_of(tmp_path, replace(ACCEPTED, before=before, after=after))
    row, confidence = found.judged[0].tables[0].rows
    assert {cell.reason for cell in row.cells} >= {"the model has no calibrated profile"}
    assert confidence.cells[0].mean == 0.6


def test_training_that_was_stopped_has_nothing_to_compare(tmp_path: Path) -> None:
    [judged] = contents_of(tmp_path, STOPPED).judged
    [table] = judged.tables
    assert table.rows[0].cells[0].reason == "training was stopped before there was anything to compare"


def test_adaptations_leave_no_dashes_in_other_sections(tmp_path: Path, make_run: WriteRun) -> None:
    make_run(tmp_path / "chain", COSDA[0], label="cosda")
    damaged = write_adaptation(tmp_path / "damaged")
    (damaged / FOLDER / "verdict.json").write_text("no verdict")
    found = contents_of(tmp_path, ACCEPTED)
    assert [chapter.section.benchmark for chapter in found.chapters] == ["digits"]
    assert found.left_out == ()
    assert found.runs == 3
    assert [row.part for row in found.overview[0].rows] == ["unreadable", "accepted"]
    assert found.tables[0] is found.overview[0]
    assert {table.kind for table in found.tables} >= {"adaptations", "verdict", "agreement", "predicted", "summary"}


@pytest.mark.parametrize("verdicts", [(), (ACCEPTED,)])
def test_an_older_run_without_a_verdict_has_the_old_page(tmp_path: Path, verdicts: tuple[Verdict, ...]) -> None:
    write_adaptation(tmp_path / "older")
    for file in (tmp_path / "older" / FOLDER).iterdir():
        file.unlink()
    found = contents_of(tmp_path, *verdicts)
    assert [run.path.name for group in found.sections[0].groups for run in group.runs] == ["older"]
    assert len(found.judged) == len(verdicts)
