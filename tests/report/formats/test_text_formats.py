"""Markdown, CSV and LaTeX, byte for byte, and the writing of the file.

After a wanted change: ``RENEW_GOLDEN=1 pytest tests/report/formats/test_text_formats.py``, then read the difference.
"""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import pytest
from stored_runs import SOURCE, WriteRun

from cosda.errors import CosdaError
from cosda.records.run import Run, find_runs
from cosda.report import render_report, write_report
from cosda.report.formats import FORMATS
from cosda.report.tables.contents import contents

GOLDEN = Path(__file__).parents[1] / "golden"


TEXTS = ["md", "csv", "tex"]


SETS = {"report": "runs", "paper": "paper_runs", "bank": "bank_runs", "adapted": "adapted_runs"}


@pytest.mark.parametrize("name", [*(f"{name}.{format}" for name in SETS for format in TEXTS), "snd.md"])
def test_golden(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> None:
    kind, format = name.split(".")
    rule = "snd" if kind == "snd" else None
    write_report(request.getfixturevalue(SETS.get(kind, "paper_runs")), tmp_path / "report", format, rule)
    made = (tmp_path / "report").read_bytes()
    stored = GOLDEN / name
    if os.environ.get("RENEW_GOLDEN"):
        stored.write_bytes(made)
    assert made == stored.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["report"]  # no temporary file is left


@pytest.mark.parametrize("format", TEXTS)
def test_the_order_of_the_runs_does_not_matter(runs: list[Run], paper_runs: list[Run], format: str) -> None:
    both = [*runs, *paper_runs]
    assert render_report(both[::-1], format) == render_report(both, format)


def test_csv_holds_every_number_of_every_table_at_full_precision(runs: list[Run], paper_runs: list[Run]) -> None:
    both = [*runs, *paper_runs]
    lines = list(csv.DictReader(io.StringIO(render_report(both, "csv"))))
    cells = [
        (table, row, *found)
        for table in contents(both).tables
        for row in table.rows
        for found in zip(table.columns, row.cells, strict=True)
    ]
    for line, (table, row, column, cell) in zip(lines, cells, strict=True):
        assert (line["table"], line["row"], line["column"]) == (table.kind, row.name, column.title)
        assert (float(line["mean"]) if line["mean"] else None) == cell.mean
        assert (float(line["spread"]) if line["spread"] else None) == cell.spread
        assert tuple(map(float, line["values"].split())) == cell.values


def test_csv_names_tables_and_tests(paper_runs: list[Run]) -> None:
    lines = list(csv.DictReader(io.StringIO(render_report(paper_runs, "csv"))))
    assert {line["table"] for line in lines} == {
        "pairs", "classes", "ablations", "rules", "summary", "final", "adapted", "matrix"
    }  # fmt: skip
    cosda = {
        (line["chain"], line["column"], line["measure"]): line
        for line in lines
        if (line["table"], line["row"]) == ("pairs", "cosda")
    }
    line = cosda["amazon > dslr", "A2D", "accuracy"]
    assert (line["values"], line["published"], line["seeds"]) == ("0.87 0.86", "0.8675", "0 1")
    assert float(line["difference"]) == pytest.approx(-0.0025)
    average = cosda["", "average", "accuracy"]
    assert (average["reference"], average["compared"], average["best"]) == ("nrc", "11", "")
    assert float(average["p"]) == pytest.approx(0.164, abs=5e-4)


def test_csv_says_why_a_number_is_missing(runs: list[Run], paper_runs: list[Run]) -> None:
    lines = list(csv.DictReader(io.StringIO(render_report([*runs, *paper_runs], "csv"))))
    assert all(line["note"] for line in lines if not line["mean"])
    cosda = next(
        line for line in lines if (line["row"], line["table"], line["benchmark"]) == ("cosda", "summary", "digits")
    )
    assert cosda["note"] == "seed 2 (digits-cosda-s2-00aa2): not finished: it has 1 epoch of stage 2 (hand)"


def test_markdown_tables_keep_their_columns(runs: list[Run], paper_runs: list[Run]) -> None:
    """A pipe in a name is no new column, mark-up no mark-up."""
    text = render_report([*runs, *paper_runs], "md")
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == len(contents([*runs, *paper_runs]).tables)
    for lines in tables:
        assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
        assert not any("<" in line for line in lines)


def test_markdown_shows_names_as_they_are(tmp_path: Path, make_run: WriteRun) -> None:
    name = "a_b_c *d* `e` [f](g) <h> & |i| \\j"
    make_run(tmp_path / "run", SOURCE[0], label=name)
    text = render_report(find_runs([tmp_path]), "md")
    assert "| a\\_b\\_c \\*d\\* \\`e\\` \\[f\\](g) &lt;h&gt; &amp; \\|i\\| \\\\j | 1 |" in text


def test_unknown_format(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(CosdaError, match=r"no report format 'htm'\. Did you mean 'html'\? Known: html, md, csv, tex"):
        write_report(runs, tmp_path / "report", "htm")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", FORMATS)
def test_no_runs(tmp_path: Path, format: str) -> None:
    with pytest.raises(CosdaError, match="no runs"):
        write_report([], tmp_path / "report", format)


def test_an_output_that_cannot_be_written(runs: list[Run], tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    with pytest.raises(CosdaError, match=r"cannot write .*report: Is a directory\. A folder stands where a file"):
        write_report(runs, tmp_path / "report", "md")
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_folders_of_the_output_are_made(runs: list[Run], tmp_path: Path) -> None:
    write_report(runs, tmp_path / "new" / "report.md", "md")
    assert (tmp_path / "new" / "report.md").is_file()


def test_the_command_takes_a_rule(
    paper_runs: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from cosda.__main__ import main

    def report(*words: str) -> int:
        monkeypatch.setattr("sys.argv", ["cosda", "report", str(paper_runs[0].path.parent), *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    made = tmp_path / "tables.tex"
    assert report("-o", str(made), "--select", "snd") == 0
    assert made.read_text(encoding="utf-8") == render_report(paper_runs, "tex", "snd")
    assert report("-o", str(tmp_path / "other.md"), "--select", "orcale") == 2
    assert "unknown selection rule 'orcale'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["tables.tex"]
