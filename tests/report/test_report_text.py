"""Markdown and CSV, byte for byte, and the writing of the file.

After a wanted change: ``RENEW_GOLDEN=1 pytest tests/report/test_report_text.py``, then read the difference.
"""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import pytest

from cosda.errors import CosdaError
from cosda.records import Run
from cosda.report import FORMATS, render_report, write_report
from cosda.report.tables import build

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("format", ["md", "csv"])
def test_golden(runs: list[Run], tmp_path: Path, format: str) -> None:
    write_report(runs, tmp_path / "report", format)
    made = (tmp_path / "report").read_bytes()
    stored = GOLDEN / f"report.{format}"
    if os.environ.get("RENEW_GOLDEN"):
        stored.write_bytes(made)
    assert made == stored.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["report"]  # no temporary file is left


@pytest.mark.parametrize("format", ["md", "csv"])
def test_the_order_of_the_runs_does_not_matter(runs: list[Run], format: str) -> None:
    assert render_report(runs[::-1], format) == render_report(runs, format)


def test_csv_has_full_precision(runs: list[Run]) -> None:
    lines = list(csv.DictReader(io.StringIO(render_report(runs, "csv"))))
    found = {
        (section.select, row.name, column.measure, column.domain): cell
        for section in build(runs).sections
        for row in section.rows
        for column, cell in zip(section.columns, row.cells, strict=True)
    }
    assert len(lines) == len(found)
    for line in lines:
        cell = found[line["select"], line["row"], line["measure"], line["domain"]]
        assert (float(line["mean"]) if line["mean"] else None) == cell.mean
        assert (float(line["spread"]) if line["spread"] else None) == cell.spread
        assert tuple(map(float, line["values"].split())) == cell.values


def test_csv_says_why_a_number_is_missing(runs: list[Run]) -> None:
    lines = list(csv.DictReader(io.StringIO(render_report(runs, "csv"))))
    assert all(line["note"] for line in lines if not line["mean"])
    cosda = next(line for line in lines if (line["row"], line["select"]) == ("cosda", "last"))
    assert cosda["note"] == "seed 2 (digits-cosda-s2-00aa2): not finished: it has 1 epoch of stage 2 (hand)"


def test_markdown_tables_keep_their_columns(runs: list[Run]) -> None:
    """A pipe in a name is no new column, mark-up no mark-up."""
    tables = [block.splitlines() for block in render_report(runs, "md").split("\n\n") if block.startswith("|")]
    assert len(tables) == 9
    for lines in tables:
        assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
        assert not any("<" in line for line in lines)


def test_unknown_format(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(CosdaError, match=r"unknown report format 'htm': use html, md, csv\. Did you mean 'html'"):
        write_report(runs, tmp_path / "report", "htm")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", FORMATS)
def test_no_runs(tmp_path: Path, format: str) -> None:
    with pytest.raises(CosdaError, match="no runs"):
        write_report([], tmp_path / "report", format)


def test_an_output_that_cannot_be_written(runs: list[Run], tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    with pytest.raises(CosdaError, match="cannot write the report"):
        write_report(runs, tmp_path / "report", "md")
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_folders_of_the_output_are_made(runs: list[Run], tmp_path: Path) -> None:
    write_report(runs, tmp_path / "new" / "report.md", "md")
    assert (tmp_path / "new" / "report.md").is_file()
