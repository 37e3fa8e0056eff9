"""The page of a single run."""

from __future__ import annotations

from pathlib import Path

from stored_runs import (
    COSDA,
    WriteRun,
    add_confusions,
    add_records,
    add_timing,
    office_epochs,
    write_bank_run,
)

from cosda.records.run import Run, read_run
from cosda.report.formats.layout import TextTable
from cosda.report.formats.run_pages import RunPage, run_pages
from cosda.report.model.groups import group_runs

ROUTING = "Routing after the last measured stage"


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


def test_the_page_of_a_domain_bank(tmp_path: Path) -> None:
    page = page_of(read_run(write_bank_run(tmp_path / "run")))
    assert rows_of(page.experts) == (
        ("print", "98.00", "98.00", "97.00", "1.00"),
        ("colour", "60.00", "80.00", "81.00", "-1.00"),
        ("hand", "50.00", "76.00", "74.00", "2.00"),
        ("average", "69.33", "84.67", "84.00", "0.67"),
    )
    panel = next(panel for panel in page.panels if panel.title == ROUTING)
    assert panel.plot is not None
    assert panel.plot["data"][0]["z"] == [[90, 8, 2], [3, 97, 0], [0, 1, 99]]


def test_the_page_of_a_bank_that_is_not_finished_shows_its_last_stage(tmp_path: Path) -> None:
    folder = write_bank_run(tmp_path / "run")
    (folder / "done.json").unlink()
    kept = [line for line in (folder / "records.jsonl").read_text().splitlines() if '"stage": 2' not in line]
    (folder / "records.jsonl").write_text("\n".join(kept) + "\n")
    page = page_of(read_run(folder))
    assert rows_of(page.experts)[2] == ("hand", "50.00", "–", "–", "–")
    panel = next(panel for panel in page.panels if panel.title == ROUTING)
    assert panel.plot is not None
    assert panel.plot["data"][0]["z"] == [[98, 2], [1, 99], [70, 30]]
    assert len(panel.plot["layout"]["shapes"]) == 2  # there is no expert for the last domain yet


def test_the_page_of_a_bank_without_labels_has_its_routing_alone(tmp_path: Path) -> None:
    folder = write_bank_run(tmp_path / "run")
    kept = [line for line in (folder / "records.jsonl").read_text().splitlines() if '"correct"' not in line]
    (folder / "records.jsonl").write_text("\n".join(kept) + "\n")
    page = page_of(read_run(folder))
    assert page.experts is None
    assert ROUTING in [panel.title for panel in page.panels if panel.plot is not None]


def test_a_run_without_a_bank_says_nothing_of_experts(tmp_path: Path, make_run: WriteRun) -> None:
    page = page_of(read_run(make_run(tmp_path / "run", COSDA[0], label="cosda")))
    assert page.experts is None
    assert ROUTING not in [panel.title for panel in page.panels]


def test_damaged_routing_is_a_reason_on_the_page(tmp_path: Path) -> None:
    folder = write_bank_run(tmp_path / "run")
    add_records(folder, [{"kind": "routing", "stage": 2, "domain": "print", "known": ["print"], "sent": []}])
    page = page_of(read_run(folder))
    assert page.experts is None
    panel = next(panel for panel in page.panels if panel.title == ROUTING)
    assert "damaged records" in panel.reason
