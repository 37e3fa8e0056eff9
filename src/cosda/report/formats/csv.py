"""Reports as CSV, for programs: one line per table, row, column and measure, at full precision."""

from __future__ import annotations

from collections.abc import Iterator

from cosda.files import csv_text
from cosda.report.formats.base import Format
from cosda.report.model.table import Cell, Column, PairedTest, Row, Table
from cosda.report.tables.contents import Contents

HEADER = (
    "table",  # the name of its kind in the registry of tables
    "benchmark",
    "chain",
    "protocol",
    "headline",
    "select",
    "fingerprint",
    "row",
    "part",
    "column",
    "measure",
    "mean",
    "spread",
    "seeds",
    "values",
    "runs",
    "published",
    "difference",
    "best",
    "reference",
    "p",
    "compared",
    "note",
)


def render(contents: Contents) -> str:
    """Every number of the report as a fraction, with the value of every seed.

    ``chain``, ``seeds``, ``values`` and ``runs`` are lists: joined by `` > ``, spaces, spaces and ``/``. ``p`` is of
    the test against ``reference`` over ``compared`` values. A line without a mean says in ``note`` why; so does one
    whose row misses a seed.
    """
    lines = [line for table in contents.tables for line in _lines(table)]
    lines += [{"runs": problem.run.path.name, "note": problem.reason} for problem in contents.left_out]
    return csv_text([HEADER, *([line.get(name, "") for name in HEADER] for line in lines)])


def _lines(table: Table) -> Iterator[dict[str, str]]:
    conditions = {
        "table": table.kind,
        "benchmark": table.benchmark,
        "protocol": table.protocol,
        "headline": table.headline,
        "select": table.select,
        "fingerprint": table.fingerprint,
    }
    tests = {(test.row, test.column, test.measure): test for test in table.tests}
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            test = tests.get((row.name, column.title, column.measure))
            yield {**conditions, **_number(table, row, column, cell), **_test(test)}


def _number(table: Table, row: Row, column: Column, cell: Cell) -> dict[str, str]:
    return {
        "chain": " > ".join(column.domains or table.domains),
        "row": row.name,
        "part": row.part,
        "column": column.title,
        "measure": column.measure,
        "mean": _exact(cell.mean),
        "spread": _exact(cell.spread),
        "seeds": " ".join(map(str, sorted({run.seed for run in cell.runs}))),
        "values": " ".join(map(repr, cell.values)),
        "runs": "/".join(run.path.name for run in cell.runs),
        "published": _exact(cell.published),
        "difference": _exact(cell.difference),
        "best": "yes" if cell.best else "",
        "note": "; ".join(filter(None, [cell.reason, *row.problems])),
    }


def _test(test: PairedTest | None) -> dict[str, str]:
    if test is None:
        return {}
    return {"reference": test.reference, "p": _exact(test.p), "compared": str(test.values)}


def _exact(value: float | None) -> str:
    return "" if value is None else repr(value)


CSV = Format("CSV, for programs: every number at full precision", render)
