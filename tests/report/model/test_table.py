"""The best of a column, and how numbers read."""

from __future__ import annotations

import pytest

from cosda.report.model.numbers import percent, show_cell, show_published
from cosda.report.model.table import Cell, Column, Row, Table, with_best

ACCURACY = Column("average", "accuracy")
DROP = Column("drop", "drop", larger_is_better=False)
STAGES = Column("stages", "stages", larger_is_better=None)


def table_of(columns: list[Column], rows: dict[str, list[float | None]]) -> Table:
    made = [Row(name, tuple(Cell(() if v is None else (v,)) for v in values)) for name, values in rows.items()]
    return Table("title", "b", (), "inductive", "top1", "last", "", tuple(columns), tuple(made))


def best(table: Table, place: int) -> list[str]:
    return [row.name for row in table.rows if row.cells[place].best]


def test_the_best_mean_of_each_column_is_marked() -> None:
    table = with_best(table_of([ACCURACY, DROP, STAGES], {"a": [0.9, 0.1, 1.0], "b": [0.8, 0.0, 2.0], "c": [None] * 3}))
    assert (best(table, 0), best(table, 1), best(table, 2)) == (["a"], ["b"], [])


def test_means_that_are_shown_equal_are_both_best() -> None:
    table = with_best(table_of([ACCURACY], {"a": [0.90001], "b": [0.9], "c": [0.5]}))
    assert best(table, 0) == ["a", "b"]


def test_equal_rows_and_a_single_row_have_no_best() -> None:
    assert best(with_best(table_of([ACCURACY], {"a": [0.9], "b": [0.9]})), 0) == []
    assert best(with_best(table_of([ACCURACY], {"a": [0.9], "b": [None]})), 0) == []


def test_rows_outside_take_no_part() -> None:
    rows = {"source": [0.0], "a": [0.1], "b": [0.2]}
    assert best(with_best(table_of([DROP], rows), outside={("source", "drop")}), 0) == ["a"]


@pytest.mark.parametrize(
    ("values", "text"),
    [((0.5,), "50.00"), ((0.5, 0.52), "51.00 ± 1.41"), ((-1e-9,), "0.00"), ((-0.0123,), "-1.23"), ((), "–")],
)
def test_show_cell(values: tuple[float, ...], text: str) -> None:
    assert show_cell(Cell(values), ACCURACY) == text
    assert not values or percent(values[0]) == show_cell(Cell(values[:1]), ACCURACY)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (Column("", "", signed=True), "+51.00 ± 1.41"),  # the spread has no sign
        (Column("", "", percent=False), "0.51 ± 0.01"),
        (Column("", "", percent=False, decimals=0), "1 ± 0"),
    ],
)
def test_a_column_says_how_its_numbers_are_shown(column: Column, text: str) -> None:
    assert show_cell(Cell((0.5, 0.52)), column) == text


@pytest.mark.parametrize(
    ("values", "published", "text"),
    [((0.5,), 0.48, "48.00 (+2.00)"), ((0.5,), 0.5, "50.00 (+0.00)"), ((), 0.48, "48.00"), ((0.5,), None, "")],
)
def test_show_published(values: tuple[float, ...], published: float | None, text: str) -> None:
    assert show_published(Cell(values, published=published), ACCURACY) == text
