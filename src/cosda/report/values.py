"""Reports as CSV, for programs: one line per table, row, column and measure, at full precision."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from cosda.report.contents import Contents
from cosda.report.grids import Comparison, Entry, Grid, Heading, Line, Measure

HEADER = (
    "table",  # pairs, classes, ablations, rules; of a section: summary, final, adapted, matrix
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


def comma_separated(book: Contents) -> str:
    """Every number of the report as a fraction, with the value of every seed.

    ``chain``, ``seeds``, ``values`` and ``runs`` are lists: joined by `` > ``, spaces, spaces and ``/``. ``p`` is of
    the test against ``reference`` over ``compared`` values. A line without a mean says in ``note`` why; so does one
    whose row misses a seed.
    """
    output = io.StringIO()
    writer = csv.DictWriter(output, HEADER, lineterminator="\n", restval="")
    writer.writeheader()
    for grid in (*book.across, *(grid for chapter in book.chapters for grid in chapter.grids)):
        writer.writerows(_lines(grid))
    for problem in book.left_out:
        writer.writerow({"runs": problem.run.path.name, "note": problem.reason})
    return output.getvalue()


def _lines(grid: Grid) -> Iterator[dict[str, str]]:
    place = {
        "table": grid.kind,
        "benchmark": grid.benchmark,
        "protocol": grid.protocol,
        "headline": grid.headline,
        "select": grid.select,
        "fingerprint": grid.fingerprint,
    }
    found = {(c.row, c.column, c.measure): c for c in grid.comparisons}
    for row in grid.rows:
        for heading, cell in zip(grid.columns, row.entries, strict=True):
            for measure, entry in zip(heading.measures, cell, strict=True):
                compared = found.get((row.name, heading.title, measure.name))
                yield {**place, **_number(grid, row, heading, measure, entry), **_test(compared)}


def _number(grid: Grid, row: Line, heading: Heading, measure: Measure, entry: Entry) -> dict[str, str]:
    cell = entry.cell
    return {
        "chain": " > ".join(heading.domains or grid.domains),
        "row": row.name,
        "part": row.part,
        "column": heading.title,
        "measure": measure.name,
        "mean": _exact(cell.mean),
        "spread": _exact(cell.spread),
        "seeds": " ".join(map(str, sorted({run.seed for run in entry.runs}))),
        "values": " ".join(map(repr, cell.values)),
        "runs": "/".join(run.path.name for run in entry.runs),
        "published": _exact(entry.published),
        "difference": _exact(entry.difference),
        "best": "yes" if entry.best else "",
        "note": "; ".join(filter(None, [cell.reason, *row.problems])),
    }


def _test(compared: Comparison | None) -> dict[str, str]:
    if compared is None:
        return {}
    return {"reference": compared.reference, "p": _exact(compared.p), "compared": str(compared.values)}


def _exact(value: float | None) -> str:
    return "" if value is None else repr(value)
