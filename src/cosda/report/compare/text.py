"""A comparison of two runs as tables of text: accuracies in percent, their differences in percentage points."""

from __future__ import annotations

from collections.abc import Iterator

from cosda import metrics
from cosda.report.compare.comparison import Comparison, Difference, Expert, Number
from cosda.report.model.numbers import EMPTY, percent
from cosda.report.model.settings import show

LONGEST = 60  # characters of a value; JSON has all of them

Rows = list[dict[str, str]]


def tables(comparison: Comparison) -> Iterator[tuple[str, Rows]]:
    """Title and rows of each table; one without rows has nothing that differs."""
    yield "What the runs are", [_line(one) for one in comparison.identity]
    yield "Settings", [_line(one, with_origin=True) for one in comparison.settings]
    yield "Where they ran", [_line(one) for one in comparison.environment]
    if comparison.accuracy:
        rows = [{"after": at.after} | {n.name: _change(n) for n in at.domains} for at in comparison.accuracy]
        yield "Accuracy, %: A → B (difference)", rows
    if comparison.experts:
        yield "Experts, %: A → B (difference)", [_expert(one) for one in comparison.experts]
    if comparison.summary:
        yield "Summary, % and percentage points", [_summary(number) for number in comparison.summary]
    if comparison.cost:
        yield "Cost", [_cost(number) for number in comparison.cost]


def _expert(one: Expert) -> dict[str, str]:
    return {"domain": one.domain, "own expert": _change(one.accuracy), "images sent to it": _change(one.found)}


def _summary(number: Number) -> dict[str, str]:
    difference = _percent(number.difference, signed=True)
    title = metrics.MEASURES[number.name].title
    return {"": title, "A": _percent(number.a), "B": _percent(number.b), "B − A": difference}


def _cost(number: Number) -> dict[str, str]:
    return {"": number.name, "A": _short(number.a), "B": _short(number.b), "B / A": _short(number.ratio)}


def _line(one: Difference, with_origin: bool = False) -> dict[str, str]:
    row = {"": one.name}
    for side, value in (("A", one.a), ("B", one.b)):
        text = EMPTY if value is None else show(value.value)
        row[side] = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
        if with_origin:
            row[f"{side} is from"] = value.origin if value else EMPTY
    return row


def _change(number: Number) -> str:
    text = f"{_percent(number.a)} → {_percent(number.b)}"
    return text if number.difference is None else f"{text} ({_percent(number.difference, signed=True)})"


def _percent(value: float | None, signed: bool = False) -> str:
    if value is None:
        return EMPTY
    text = percent(value)
    return f"+{text}" if signed and value > 0 and text != "0.00" else text


def _short(value: float | None) -> str:
    if value is None:
        return EMPTY
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
