"""Finding what a test looks at in a table or among sections."""

from __future__ import annotations

from cosda.records.run import Run
from cosda.report.model.groups import Section, group_runs
from cosda.report.model.table import Cell, Table


def titles_of(table: Table) -> list[str]:
    """The titles of the columns, each once."""
    return list(dict.fromkeys(column.title for column in table.columns))


def cell_of(table: Table, row: str, title: str, measure: str = "") -> Cell:
    """The cell of a row in the first column of this title, and measure where a title has several."""
    (place, *_) = [
        i for i, column in enumerate(table.columns) if column.title == title and measure in ("", column.measure)
    ]
    return next(found for found in table.rows if found.name == row).cells[place]


def both_of(table: Table, row: str, title: str) -> tuple[Cell, Cell]:
    """Accuracy and drop of a row."""
    return cell_of(table, row, title, "accuracy"), cell_of(table, row, title, "drop")


def sections_of(runs: list[Run], benchmark: str, select: str | None = None) -> list[Section]:
    """The sections of a benchmark."""
    return [section for section in group_runs(runs, select).sections if section.benchmark == benchmark]
