"""What a kind of table is, and rows of the groups of one section."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cosda import metrics
from cosda.report.model.groups import NOT_FINISHED, Group, Section
from cosda.report.model.published import Published, label_of, published
from cosda.report.model.table import Cell, Column, Row, Table


@dataclass(frozen=True)
class TableKind:
    """An entry of the registry of tables."""

    title: str  # what the tables show, in a few words
    make: Callable[[Sequence[Section]], list[Table]]  # the tables of these sections, perhaps none
    per_section: bool = False  # made of each section alone and shown within it; the others come before all sections


def table_of(section: Section, title: str, columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    """A table under the conditions of a section."""
    return Table(
        title=title,
        benchmark=section.benchmark,
        domains=section.domains,
        protocol=section.protocol,
        headline=section.headline,
        select=section.select,
        fingerprint=section.fingerprint,
        columns=tuple(columns),
        rows=tuple(rows),
    )


def row_of(group: Group, cells: Sequence[Cell]) -> Row:
    """The row of a group."""
    return Row(group.name, tuple(cells), group.seeds, problems=tuple(map(str, group.problems)))


def cell_of(
    group: Group,
    compute: Callable[[metrics.Matrix], float | None],
    undefined: str = "",
    published: float | None = None,
) -> Cell:
    """A number of the accuracy matrix of each counted run."""
    values = tuple(value for matrix in group.matrices if (value := compute(matrix)) is not None)
    reason = "" if values else (undefined if group.counted else NOT_FINISHED)
    return Cell(values, reason, group.counted, published)


def accuracy_at(stage: int, domain: int) -> Callable[[metrics.Matrix], float]:
    """One number of an accuracy matrix."""
    return lambda accuracy: accuracy[stage][domain]


def published_for(section: Section, group: Group) -> Published:
    """The paper's numbers of a group's method."""
    return published(section.benchmark, section.domains, label_of(group.runs[0]))
