"""What stands below a table: tests, the paper's numbers, empty cells; each note follows from what is in the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cosda.files import flatten
from cosda.records.run import Run
from cosda.report.model.groups import NOT_FINISHED, Section
from cosda.report.model.numbers import EMPTY, show_p
from cosda.report.model.published import NETWORKS
from cosda.report.model.settings import show
from cosda.report.model.significance import FEWEST
from cosda.report.model.table import LEVEL, PairedTest, Table
from cosda.report.tables.ablations import WHOLE


def with_notes(table: Table, empty_cells: bool) -> Table:
    """A table with the notes that follow from what is in it; those on empty cells only if asked for."""
    notes = [*table.notes, *_on_tests(table), *_on_the_paper(table)]
    return replace(table, notes=(*notes, *(_on_empty_cells(table) if empty_cells else ())))


def section_notes(section: Section, tables: Sequence[Table]) -> tuple[str, ...]:
    """Why cells in the tables of a section are empty, and which seeds are missing."""
    empty = [
        f"{column.title}: {reason}."
        for table in tables
        for place, column in enumerate(table.columns)
        for reason in dict.fromkeys(row.cells[place].reason for row in table.rows)
        if reason not in ("", NOT_FINISHED)
    ]
    missing = [f"{group.name}, {problem}." for group in section.groups for problem in group.problems]
    return (*dict.fromkeys(empty), *missing)


def _on_tests(table: Table) -> list[str]:
    """What the tests say of the rows, a sentence for each column that was tested, and what the test is."""
    columns: dict[tuple[str, str], list[PairedTest]] = {}
    for test in table.tests:
        columns.setdefault((test.column, test.measure), []).append(test)
    notes = [_results(column, measure, tests) for (column, measure), tests in columns.items()]
    if any(test.p is not None for test in table.tests):
        notes.append(
            f"p: Wilcoxon's signed-rank test over values paired by {table.tests[0].paired_by}, with Holm's "
            f"correction over the rows. † marks p ≥ {LEVEL}: the difference may be chance."
        )
    return notes


def _results(column: str, measure: str, tests: list[PairedTest]) -> str:
    name = measure if column in (measure, "average") else column
    if all(test.p is None for test in tests):
        most = max(test.values for test in tests)
        few = f"{most} value{'s' * (most != 1)} paired by {tests[0].paired_by}"
        return f"{name}: differences are not tested: at most {few}, and {FEWEST} are needed."
    results = [
        f"{test.row}: "
        + (f"{test.values} values are too few" if test.p is None else f"{show_p(test.p)} ({test.values} values)")
        for test in tests
    ]
    return f"{name}, against {tests[0].reference}: {'; '.join(results)}."


def _on_the_paper(table: Table) -> list[str]:
    if not table.has_published:
        return []
    network = NETWORKS.get(table.benchmark, "another network")
    ours = sorted({_network(run) for row in table.rows for cell in row.cells for run in cell.runs})
    here = f"; here it is {' and '.join(ours)}" if ours else ""
    return [
        f"paper: the number in the paper, in brackets ours minus it. The paper trains the whole {network}{here}; "
        "with another network or shorter training the two are not comparable digit by digit."
    ]


def _network(run: Run) -> str:
    """The encoder, where its weights came from, and what else sets it apart from the paper's."""
    settings = flatten(run.config["settings"])
    name = show(settings.get("network.encoder", "a network that is not named"))
    weights, precision = settings.get("network.weights"), settings.get("network.precision", "32")
    return (
        name
        + (f" ({show(weights)})" if weights else "")
        + (", frozen" if settings.get("network.freeze_encoder") else "")
        + (f", {precision}" if precision != "32" else "")
    )


def _on_empty_cells(table: Table) -> list[str]:
    empty: dict[str, dict[str, list[str]]] = {}
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell.mean is None and cell.reason != WHOLE:
                titles = empty.setdefault(cell.reason, {}).setdefault(row.name, [])
                titles += [column.title] if column.title not in titles else []
    return [
        f"{EMPTY} {reason}: " + "; ".join(f"{row} ({', '.join(titles)})" for row, titles in rows.items()) + "."
        for reason, rows in sorted(empty.items())
    ]
