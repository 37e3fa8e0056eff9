"""A measure, a table, a figure and a format from outside: one entry each, and every place shows it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from stored_runs import BN, COSDA, WriteRun

from cosda import metrics
from cosda.__main__ import main
from cosda.cli.tables import print_run, print_tables
from cosda.records.run import Run, find_runs, read_run
from cosda.records.writers import rows
from cosda.report import render_report, write_report
from cosda.report.compare.comparison import compare
from cosda.report.compare.text import tables as compared
from cosda.report.figures import FIGURES, FigureKind
from cosda.report.figures.base import Figure, Panel
from cosda.report.figures.style import Palette
from cosda.report.formats import FORMATS, Format
from cosda.report.model.groups import Section
from cosda.report.model.table import Cell, Column, Row, Table
from cosda.report.tables import TABLES, TableKind
from cosda.report.tables.base import table_of


@pytest.fixture
def two_runs(make_run: WriteRun, tmp_path: Path) -> list[Run]:
    for label, matrix in (("bn", BN[0]), ("cosda", COSDA[0])):
        make_run(tmp_path / label, matrix, label=label)
    return find_runs([tmp_path])


# --- Measures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def worst(monkeypatch: pytest.MonkeyPatch) -> None:
    def compute(accuracy: metrics.Matrix) -> float:
        return min(accuracy[-1])

    measure = metrics.Measure("Worst domain", "The lowest accuracy after the last stage.", compute)
    monkeypatch.setitem(metrics.MEASURES, "worst", measure)


@pytest.mark.usefixtures("worst")
def test_a_measure_is_in_summaries_and_logs(two_runs: list[Run]) -> None:
    assert [run.summary()["worst"] for run in two_runs] == [0.60, 0.74]  # the last stage: 80, 66, 60 and 96, 79, 74
    folder = two_runs[1].path
    text = (folder / "records.jsonl").read_text(encoding="utf-8").replace('"steps": 4', '"rates": {}, "passes": 1')
    (folder / "records.jsonl").write_text(text, encoding="utf-8")
    assert rows(read_run(folder))[-1].values["summary/worst"] == 0.74


@pytest.mark.usefixtures("worst")
def test_a_measure_is_on_the_terminal(two_runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    print_run(two_runs[1])
    assert "worst 74.00%" in capsys.readouterr().out
    print_tables(two_runs)
    shown = capsys.readouterr().out
    assert "Worst domain" in shown
    assert "74.0" in shown


@pytest.mark.usefixtures("worst")
@pytest.mark.parametrize("format", FORMATS)
def test_a_measure_is_in_every_format(two_runs: list[Run], format: str) -> None:
    text = render_report(two_runs, format)
    assert "Worst domain" in text
    assert ("The lowest accuracy after the last stage." in text) is (format != "csv")
    if format == "csv":
        found = [line for line in csv.DictReader(io.StringIO(text)) if line["measure"] == "worst"]
        assert [(line["row"], line["mean"], line["best"]) for line in found] == [
            ("bn", "0.6", ""), ("cosda", "0.74", "yes")
        ]  # fmt: skip


@pytest.mark.usefixtures("worst")
def test_a_measure_is_in_the_table_over_chains_and_in_comparisons(make_run: WriteRun, tmp_path: Path) -> None:
    for name, domains in (("one", ["a", "b", "c"]), ("two", ["a", "c", "b"])):
        make_run(tmp_path / name, COSDA[0], label="cosda", domains=domains)
    lines = list(csv.DictReader(io.StringIO(render_report(find_runs([tmp_path]), "csv"))))
    assert [line["mean"] for line in lines if (line["table"], line["measure"]) == ("chains", "worst")] == ["0.74"]
    found = compare(tmp_path / "one", tmp_path / "two")
    assert {"name": "worst", "a": 0.74, "b": 0.74, "difference": 0.0} in found.as_json()["summary"]
    summary = next(rows for title, rows in compared(found) if title.startswith("Summary"))
    assert {"": "Worst domain", "A": "74.00", "B": "74.00", "B − A": "0.00"} in summary


def test_a_measure_that_a_chain_does_not_have_says_why(
    two_runs: list[Run], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    never = metrics.Measure("Never", "Nothing.", lambda accuracy: None, undefined="no chain has it")
    monkeypatch.setitem(metrics.MEASURES, "never", never)
    assert "- Never: no chain has it." in render_report(two_runs, "md")
    print_run(two_runs[0])
    assert "never" not in capsys.readouterr().out


def test_a_long_measure_is_not_on_the_terminal(two_runs: list[Run], capsys: pytest.CaptureFixture[str]) -> None:
    print_run(two_runs[0])
    print_tables(two_runs)
    shown = capsys.readouterr().out.lower()
    for measure in metrics.MEASURES.values():
        assert (measure.title.lower() in shown) is measure.short


# --- Tables -----------------------------------------------------------------------------------------------------------


def run_counts(sections: Sequence[Section]) -> list[Table]:
    """How many runs each method has."""
    columns = [Column("runs", "runs", larger_is_better=None, percent=False, decimals=0)]
    return [
        table_of(s, "How many runs", columns, [Row(g.name, (Cell((float(len(g.runs)),)),)) for g in s.groups])
        for s in sections
    ]


@pytest.mark.parametrize("per_section", [True, False])
@pytest.mark.parametrize("format", FORMATS)
def test_a_table_from_outside_is_in_every_format(
    runs: list[Run], monkeypatch: pytest.MonkeyPatch, format: str, per_section: bool
) -> None:
    monkeypatch.setitem(TABLES, "counts", TableKind("how many runs a method has", run_counts, per_section))
    text = render_report(runs, format)
    assert text.count("counts" if format == "csv" else "How many runs") >= 3  # one of each section
    if format == "md":
        assert "| method | runs |\n| --- | --: |\n| source | 2 |" in text
        level = "###" if per_section else "##"
        assert f"\n{level} How many runs" in text


# --- Figures ----------------------------------------------------------------------------------------------------------


def one_point(section: Section, colours: Palette) -> Figure:
    plot = {"data": [{"type": "scatter", "x": [1], "y": [123.25]}], "layout": {"height": 100}}
    return Figure("A single point", f"Of {section.benchmark}.", (Panel("here", plot),))


def test_a_figure_from_outside_is_on_the_page(two_runs: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FIGURES, "point", FigureKind("a single point", one_point))
    page = render_report(two_runs, "html")
    assert "<h3>A single point</h3>" in page
    assert "Of digits." in page
    assert '"y":[123.25]' in page


# --- Formats ----------------------------------------------------------------------------------------------------------


def test_a_format_from_outside_can_be_written(
    two_runs: list[Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def render(contents: object) -> str:
        return json.dumps([table.kind for table in contents.tables])  # type: ignore[attr-defined]

    monkeypatch.setitem(FORMATS, "json", Format("the kinds of tables, for programs", render))
    write_report(two_runs, str(tmp_path / "kinds.json"), "json")
    assert json.loads((tmp_path / "kinds.json").read_text()) == ["summary", "final", "adapted", "matrix"]
    assert "json: the kinds of tables, for programs" in FORMATS.described()
    monkeypatch.setattr("sys.argv", ["cosda", "report", str(tmp_path), "-o", str(tmp_path / "again.json")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code, capsys.readouterr().err
    assert (tmp_path / "again.json").read_text() == (tmp_path / "kinds.json").read_text()


def test_the_help_names_every_format(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["cosda", "report", "--help"])
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().out
    assert all(f"{name}:" in shown for name in FORMATS)


@pytest.mark.parametrize("registry", [TABLES, FIGURES, FORMATS, metrics.MEASURES], ids=lambda found: found.kind)
def test_every_entry_has_a_title_of_its_own(registry: dict[str, metrics.Measure]) -> None:
    titles = [entry.title for entry in registry.values()]
    assert all(titles)
    assert len(set(titles)) == len(titles)
