"""The page of a single run."""

from __future__ import annotations

from pathlib import Path

from stored_runs import COSDA, WriteRun, add_confusions, add_timing, office_epochs

from cosda.records.run import Run, read_run
from cosda.report.formats.layout import TextTable
from cosda.report.formats.run_pages import RunPage, run_pages
from cosda.report.model.groups import group_runs


def page_of(run: Run) -> RunPage:
    return run_pages(group_runs([run]).sections)[0][0]


def rows_of(table: TextTable | None) -> tuple[tuple[str, ...], ...]:
    assert table is not None
    return table.rows


def test_the_page_of_a_run(tmp_path: Path, make_run: WriteRun) -> None:
    epochs = office_epochs(75, 88)
    folder = make_run(tmp_path / "run", [[90, 60], [88, 75]], label="cosda", domains=["a", "b"], epochs=epochs)
    add_confusions(folder, 1, [[[40, 10], [5, 45]], [[30, 20], [0, 50]]])
    add_timing(folder, 3)
    page = page_of(read_run(folder))
    assert page.anchor == "run-run"
    assert page.matrix is not None
    assert page.matrix.header == ("stage", "a", "b")
    assert rows_of(page.matrix) == (("source model", "90.00", "60.00"), ("after b", "88.00", "75.00"))
    assert rows_of(page.selection)[:2] == (
        ("after b", "last (chosen)", "3", "1.00", "–"),
        ("after b", "information", "3", "1.00", "0.50"),
    )
    assert ("after b", "snd", "2", "0.00", "1.00") in rows_of(page.selection)
    assert rows_of(page.speed)[0] == ("after b", "3", "2.25", "0.750", "133", "3")  # a repeated epoch counts once
    titles = [panel.title for panel in page.panels]
    assert titles[:2] == ["Accuracy", "Losses"]
    assert titles[3:] == [
        "Seconds of each epoch",
        "Confusions on a after the last stage",
        "Confusions on b after the last stage",
    ]
    assert "adapt.lr" in page.settings
    assert "preset digits" in page.settings
    assert "3.11.7" in page.environment


def test_the_page_of_an_unfinished_run(tmp_path: Path, make_run: WriteRun) -> None:
    page = page_of(read_run(make_run(tmp_path / "run", COSDA[2], label="cosda", finished=False)))
    assert page.state.startswith("not finished")
    assert rows_of(page.matrix)[-1] == ("after hand", "–", "–", "–")
    assert [row[:3] for row in rows_of(page.selection) if "chosen" in row[1]] == [
        ("after colour", "last (chosen)", "3")
    ]
    assert ("after hand", "last") in [
        row[:2] for row in rows_of(page.selection)
    ]  # what it would choose of the first epoch
