"""Reports as text: Markdown for readers, CSV for programs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from cosda.records import Run
from cosda.report import wording
from cosda.report.columns import SUMMARY
from cosda.report.pairs import PairTable, pair_tables
from cosda.report.tables import Cell, Section, build

CSV_HEADER = (
    "benchmark",
    "chain",
    "protocol",
    "headline",
    "select",
    "fingerprint",
    "row",
    "measure",
    "domain",
    "mean",
    "spread",
    "seeds",
    "values",
    "runs",
    "note",
)


def markdown(runs: Sequence[Run]) -> str:
    """The tables of all runs, with the rules they were made under, as GitHub-flavoured Markdown."""
    tables = build(runs)
    lines = ["# cosda report", ""]
    for section in tables.sections:
        lines += _section(section)
    for pairs in pair_tables(tables.sections):
        lines += _pairs(pairs)
    if tables.left_out:
        lines += ["## Runs that could not be placed", ""]
        lines += [f"- {_code(p.run.path.name)}: {_plain(p.reason)}" for p in tables.left_out]
        lines += [""]
    lines += ["## What the numbers mean", "", wording.HOW_TO_READ, ""]
    lines += [f"- **{column.title}**: {column.meaning}" for column in SUMMARY]
    return "\n".join(lines) + "\n"


def comma_separated(runs: Sequence[Run]) -> str:
    """One line per row, measure and domain; fractions at full precision, with the value of every seed.

    ``chain``, ``seeds``, ``values`` and ``runs`` are lists: joined by `` > ``, spaces, spaces and ``/``.
    A line without a mean says in ``note`` why; so does one whose row misses a seed.
    """
    tables = build(runs)
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for section in tables.sections:
        place = (
            section.benchmark,
            " > ".join(section.domains),
            section.protocol,
            section.headline,
            section.select,
            section.fingerprint,
        )
        for row in section.rows:
            missing = [f"seed {p.run.seed} ({p.run.path.name}): {p.reason}" for p in row.problems]
            behind = (
                " ".join(str(run.seed) for run in row.counted),
                "/".join(run.path.name for run in row.counted),
            )
            for column, cell in zip(section.columns, row.cells, strict=True):
                writer.writerow(
                    (
                        *place,
                        row.name,
                        column.measure,
                        column.domain,
                        "" if cell.mean is None else repr(cell.mean),
                        "" if cell.spread is None else repr(cell.spread),
                        behind[0],
                        " ".join(map(repr, cell.values)),
                        behind[1],
                        "; ".join(filter(None, [cell.reason, *missing])),
                    )
                )
    for problem in tables.left_out:
        writer.writerow(("",) * 13 + (problem.run.path.name, problem.reason))
    return output.getvalue()


def _section(section: Section) -> list[str]:
    lines = [f"## {_plain(section.title)} (rule: {_plain(section.select)})", ""]
    lines += [f"- Accuracy: {wording.headline(section)}."]
    lines += [f"- Protocol: {_plain(section.protocol)}: {wording.protocol(section.protocol)}".removesuffix(": ")]
    lines += [f"- Selection rule: {_plain(section.select)}: {_plain(wording.selection(section.select))}"]
    lines += [f"- Data: {_code(section.fingerprint)}", ""]
    for name, title in wording.GROUPS.items():
        lines += [f"### {title}", "", *_table(section, name), ""]
    notes = [f"{_plain(column.title)}: {column.undefined}." for column in wording.undefined(section)]
    notes += [
        f"{_plain(row)}, seed {p.run.seed} ({_code(p.run.path.name)}): {_plain(p.reason)}."
        for row, p in wording.problems(section)
    ]
    if notes:
        lines += ["Empty cells and missing seeds:", "", *(f"- {note}" for note in notes), ""]
    return lines


def _table(section: Section, name: str) -> list[str]:
    columns = wording.group(section, name)
    lines = [
        _line(["method", "seeds", *(_plain(column.title) for _, column in columns)]),
        _line(["---", "--:", *("--:" for _ in columns)]),
    ]
    for row in section.rows:
        cells = []
        for i, _ in columns:
            text = wording.show_cell(row.cells[i])
            cells.append(f"**{text}**" if wording.is_best(section, row, i) else text)
        lines.append(_line([_plain(row.name), wording.seeds(row), *cells]))
    return lines


def _pairs(table: PairTable) -> list[str]:
    titles = [_plain(" → ".join(pair)) for pair in table.pairs]
    lines = [f"## {_plain(table.benchmark)}: all pairs (rule: {_plain(table.select)})", ""]
    lines += ["Accuracy on the target | drop on the source: mean over seeds, and ± their spread in the averages. Last"]
    lines += [
        "column: the same weights with the other BatchNorm statistics (merged over domains, or the target's own).",
        "",
    ]
    lines += [_line(["method", *titles, "average", "average, other statistics"])]
    lines += [_line(["---", *("--:" for _ in titles), "--:", "--:"])]
    for row in table.rows:
        cells = [_both(_mean(pair.accuracy), _mean(pair.drop)) for pair in row.pairs]
        averages = [_both(*map(wording.show_cell, (p.accuracy, p.drop))) for p in (row.average, row.other_average)]
        lines += [_line([_plain(row.name), *cells, *averages])]
    return [*lines, ""]


def _mean(cell: Cell) -> str:
    return "–" if cell.mean is None else wording.percent(cell.mean)


def _both(accuracy: str, drop: str) -> str:
    return f"{accuracy} \\| {drop}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, within one line."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*|\[\]])", r"\\\1", text)


def _code(text: str) -> str:
    return "`" + " ".join(text.split()).replace("`", "'") + "`"
