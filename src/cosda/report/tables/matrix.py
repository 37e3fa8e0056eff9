"""Accuracy matrices: every domain after every stage, a block of rows for each method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cosda.report.model.groups import Group, Section
from cosda.report.model.table import Column, Row, Table
from cosda.report.tables.base import TableKind, accuracy_at, cell_of, table_of


def matrix_tables(sections: Sequence[Section]) -> list[Table]:
    """A table for each chain of several targets that has a finished run."""
    return [_table(section) for section in sections if len(section.domains) > 2 and section.finished]


def _table(section: Section) -> Table:
    columns = [Column(domain, "accuracy") for domain in section.domains]
    rows = [row for group in section.finished for row in _stages(group, section.domains)]
    table = table_of(section, "Accuracy matrices: every domain after every stage", columns, rows)
    return replace(table, folded=True)  # it is long, and there are heat maps of it


def _stages(group: Group, domains: tuple[str, ...]) -> list[Row]:
    rows = []
    for stage, domain in enumerate(domains):
        cells = [cell_of(group, accuracy_at(stage, i)) for i in range(len(domains))]
        rows.append(Row(group.name, tuple(cells), group.seeds, f"after {domain}" if stage else "source model"))
    return rows


MATRIX = TableKind("accuracy on every domain after every stage", matrix_tables, per_section=True)
