"""From a table of numbers to rows of text, in the paper's layouts; a format brings its own mark-up.

* Where a title has several measures (pairs, classes), they stand below each other, as in the paper's Tables 2 and 3: a
  line for the accuracy and one for the drop.
* A table of very many pairs is turned, as the paper's Table 1: pairs go down, methods across, and a cell holds
  "accuracy | drop".
* Where the paper has numbers, a line with these follows each of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cosda.report.model.numbers import show_cell, show_published
from cosda.report.model.table import Cell, Column, Row, Table

PAPER = "paper"
Numbers = Sequence[tuple[Cell, Column]]


@dataclass(frozen=True)
class Markup:
    """How a format writes what a cell holds."""

    plain: Callable[[str], str]  # text that is shown as it is
    bold: Callable[[str], str]
    dagger: str  # behind a number whose difference may be chance
    bar: str  # between two numbers of one cell

    def number(self, cell: Cell, column: Column) -> str:
        """One of our numbers."""
        text = self.plain(show_cell(cell, column))
        return (self.bold(text) if cell.best else text) + self.dagger * cell.may_be_chance

    def published(self, cell: Cell, column: Column) -> str:
        """The paper's number; nothing where it has none."""
        return self.plain(show_published(cell, column))


@dataclass(frozen=True)
class TextTable:
    """A table as text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1  # so many columns at the left hold names, the others numbers
    breaks: frozenset[int] = frozenset()  # rows with which a new block begins


def lay_out(table: Table, markup: Markup) -> TextTable:
    """The text of a table."""
    if any(column.block and column.average for column in table.columns):
        return _turned(table, markup)
    return _upright(table, markup)


def _upright(table: Table, markup: Markup) -> TextTable:
    parts = any(row.part for row in table.rows)
    seeds = any(row.seeds for row in table.rows)
    kinds = bool(table.stacked) or table.has_published  # a column that says what a line holds
    names = [table.row_title, *([table.part_title] * parts), *(["seeds"] * seeds), *([""] * kinds)]
    titles = [column.title for column in table.columns if not table.stacked or column.measure == table.stacked[0]]
    rows: list[tuple[str, ...]] = []
    breaks: set[int] = set()
    previous = ""
    for row in table.rows:
        if (parts or kinds) and row.name != previous and rows:
            breaks.add(len(rows))
        first = [row.name if row.name != previous else "", *([row.part] * parts), *([row.seeds] * seeds)]
        previous = row.name
        for kind, numbers in _lines(table, row, markup):
            rows.append((*map(markup.plain, [*first, *([kind] * kinds)]), *numbers))
            first = [""] * len(first)
    return TextTable(tuple(map(markup.plain, [*names, *titles])), tuple(rows), len(names), frozenset(breaks))


def _lines(table: Table, row: Row, markup: Markup) -> list[tuple[str, list[str]]]:
    """Ours and the paper's numbers of one row, a line for each stacked measure, with what the line holds."""
    lines: list[tuple[str, list[str]]] = []
    numbers = list(zip(row.cells, table.columns, strict=True))
    for measure in table.stacked or ("",):
        found = [(cell, column) for cell, column in numbers if measure in ("", column.measure)]
        lines.append((measure or "ours", [markup.number(*one) for one in found]))
        if _has_published(found):
            lines.append((PAPER, [markup.published(*one) for one in found]))
    return lines


def _turned(table: Table, markup: Markup) -> TextTable:
    kinds = table.has_published
    header = ["pair", *([""] * kinds), *(row.name for row in table.rows)]
    rows = [tuple(map(markup.plain, ["seeds", *([""] * kinds), *(row.seeds for row in table.rows)]))]
    breaks = {1}
    step = len(table.stacked)
    for start in range(0, len(table.columns), step):
        columns = table.columns[start : start + step]
        if start and columns[0].block != table.columns[start - 1].block:
            breaks.add(len(rows))
        found = [list(zip(row.cells[start : start + step], columns, strict=True)) for row in table.rows]
        ours = [markup.bar.join(markup.number(*one) for one in numbers) for numbers in found]
        rows.append((markup.plain(columns[0].title), *(["ours"] * kinds), *ours))
        if any(map(_has_published, found)):
            papers = [markup.bar.join(filter(None, (markup.published(*one) for one in numbers))) for numbers in found]
            rows.append(("", PAPER, *papers))
    return TextTable(tuple(map(markup.plain, header)), tuple(rows), 1 + kinds, frozenset(breaks))


def _has_published(numbers: Numbers) -> bool:
    return any(cell.published is not None for cell, _ in numbers)
