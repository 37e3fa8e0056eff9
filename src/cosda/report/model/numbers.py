"""How numbers read: percent with two decimals, mean ± spread, the paper's number with the difference from it."""

from __future__ import annotations

from dataclasses import replace

from cosda.report.model.table import Cell, Column

EMPTY = "–"


def percent(value: float) -> str:
    """A fraction as percent with two decimals, and never as -0.00."""
    return show(value, Column("", ""))


def show(value: float, column: Column) -> str:
    """A number as its column asks for."""
    shown = round(value * (100 if column.percent else 1), column.decimals) + 0.0
    return f"{shown:+.{column.decimals}f}" if column.signed else f"{shown:.{column.decimals}f}"


def show_cell(cell: Cell, column: Column) -> str:
    """Ours: mean ± spread, or a dash."""
    if cell.mean is None:
        return EMPTY
    spread = "" if cell.spread is None else f" ± {show(cell.spread, replace(column, signed=False))}"
    return show(cell.mean, column) + spread


def show_published(cell: Cell, column: Column) -> str:
    """The paper's number and in brackets ours minus it; nothing where it has none."""
    if cell.published is None:
        return ""
    shown = show(cell.published, column)
    return shown if cell.difference is None else f"{shown} ({show(cell.difference, replace(column, signed=True))})"


def show_p(p: float) -> str:
    """A p-value with three decimals."""
    return "p < 0.001" if p < 0.0005 else f"p = {p:.3f}"
