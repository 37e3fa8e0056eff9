"""Accuracy on each target right after adapting to it."""

from __future__ import annotations

from collections.abc import Sequence

from cosda.report.model.groups import Section
from cosda.report.model.table import Column, Table, with_best
from cosda.report.tables.base import TableKind, accuracy_at, cell_of, row_of, table_of


def adapted_tables(sections: Sequence[Section]) -> list[Table]:
    """A table for each chain of several targets; with a single one the final accuracies are the same."""
    return [_table(section) for section in sections if len(section.domains) > 2]


def _table(section: Section) -> Table:
    targets = list(enumerate(section.domains))[1:]
    columns = [Column(domain, "adapted") for _, domain in targets]
    rows = [row_of(group, [cell_of(group, accuracy_at(i, i)) for i, _ in targets]) for group in section.groups]
    return with_best(table_of(section, "Accuracy on each target right after adapting to it", columns, rows))


ADAPTED = TableKind("accuracy on each target right after adapting to it", adapted_tables, per_section=True)
