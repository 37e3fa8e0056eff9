"""Accuracy on each domain after the last stage."""

from __future__ import annotations

from collections.abc import Sequence

from cosda.report.model.groups import Section
from cosda.report.model.table import Column, Table, with_best
from cosda.report.tables.base import TableKind, accuracy_at, cell_of, row_of, table_of


def final_tables(sections: Sequence[Section]) -> list[Table]:
    """A table for each section."""
    return [final_table(section) for section in sections]


def final_table(section: Section) -> Table:
    """The accuracy of the last model on each domain of the chain."""
    columns = [Column(domain, "final") for domain in section.domains]
    rows = [
        row_of(group, [cell_of(group, accuracy_at(-1, i)) for i in range(len(columns))]) for group in section.groups
    ]
    return with_best(table_of(section, "Accuracy on each domain after the last stage", columns, rows))


FINAL = TableKind("accuracy on each domain after the last stage", final_tables, per_section=True)
