"""The measures of a chain, a row for each method, beside the paper's; and the few of them that a terminal shows."""

from __future__ import annotations

from collections.abc import Sequence

from cosda import metrics
from cosda.report.model.groups import Group, Section
from cosda.report.model.significance import against_best
from cosda.report.model.table import Table, measure_columns, with_best
from cosda.report.tables.base import TableKind, cell_of, published_for, row_of, table_of
from cosda.report.tables.final import final_table


def summary_tables(sections: Sequence[Section]) -> list[Table]:
    """A table for each section, tested by the accuracies that the average is the mean of."""
    return [_tested(section, summary_table(section)) for section in sections]


def summary_table(section: Section) -> Table:
    """Every measure of every method of a section."""
    rows = []
    for group in section.groups:
        paper = published_for(section, group)
        cells = [cell_of(group, m.compute, m.undefined, paper.of(name)) for name, m in metrics.MEASURES.items()]
        rows.append(row_of(group, cells))
    return with_best(table_of(section, "Summary", measure_columns(), rows))


def short_table(section: Section) -> Table:
    """What a terminal has room for: the short measures, then the accuracy on each domain after the last stage."""
    summary, final = summary_table(section), final_table(section)
    short = [i for i, column in enumerate(summary.columns) if metrics.MEASURES[column.measure].short]
    rows = [
        row_of(group, [*(measures.cells[i] for i in short), *accuracies.cells])
        for group, measures, accuracies in zip(section.groups, summary.rows, final.rows, strict=True)
    ]
    return table_of(section, section.title, [*(summary.columns[i] for i in short), *final.columns], rows)


def _tested(section: Section, table: Table) -> Table:
    final = {group.name: _final_accuracies(group) for group in section.groups}
    average = table.place(metrics.MEASURES["average"].title, "average")
    tested = against_best(table, average, final, "seed and domain")
    return tested if any(test.p is not None for test in tested.tests) else table


def _final_accuracies(group: Group) -> dict[tuple[int, int], float]:
    """Accuracies of the last model, by seed and domain."""
    return {
        (run.seed, domain): accuracy
        for run, matrix in zip(group.counted, group.matrices, strict=True)
        for domain, accuracy in enumerate(matrix[-1])
    }


SUMMARY = TableKind("every measure of every method on a chain", summary_tables, per_section=True)
