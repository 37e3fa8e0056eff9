"""What the experts of a domain bank bring, and what it costs that nobody names the domain of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cosda.records.run import Run
from cosda.report.model.groups import Group, Section
from cosda.report.model.table import Cell, Column, Row, Table
from cosda.report.tables.base import TableKind, table_of
from cosda.report.tables.joined import mean_of

COLUMNS = (
    Column("base", "base"),
    Column("own expert", "expert"),
    Column("routed", "routed"),
    Column("routing costs", "cost", larger_is_better=False),
)
AVERAGE = "average"
NOTE = (
    "After the last stage. Base: the model that the bank was built on. Own expert: that of the domain, which must then "
    "be known for each image; for the source it is the base. Routed: the bank, which is not told the domain. Routing "
    "costs: own expert minus routed, in percentage points; negative where another expert or several did better."
)
NOT_MEASURED = "not measured, because the run began with a bank"

Numbers = Sequence[float | None]  # one a column


def expert_tables(sections: Sequence[Section]) -> list[Table]:
    """A table for each section with a domain bank."""
    return [_table(section) for section in sections if section.banks]


def _table(section: Section) -> Table:
    rows = [row for group in section.banks for row in _rows(group)]
    table = table_of(section, "Base, expert, routed: accuracy on each domain", COLUMNS, rows)
    return replace(table, part_title="domain", notes=(NOTE,))


def _rows(group: Group) -> list[Row]:
    found = [by_domain(run) for run in group.counted]
    return [
        Row(
            group.name,
            tuple(_cell(group, [numbers[part][j] for numbers in found]) for j in range(len(COLUMNS))),
            group.seeds,
            part,
        )
        for part in found[0]
    ]


def _cell(group: Group, of_seeds: Numbers) -> Cell:
    values = tuple(value for value in of_seeds if value is not None)
    return Cell(values, "" if values else NOT_MEASURED, group.counted)


def by_domain(run: Run) -> dict[str, Numbers]:
    """The numbers of each domain of a run's chain after its last stage, and their average."""
    matrix = run.matrix()
    routed = matrix[-1] if matrix else [None] * len(run.domains)
    found: dict[str, Numbers] = {}
    for domain, accuracy in zip(run.domains, routed, strict=True):
        expert = run.expert_accuracy(domain)
        cost = None if expert is None or accuracy is None else expert - accuracy
        found[domain] = (run.base_accuracy(domain), expert, accuracy, cost)
    return {**found, AVERAGE: [mean_of(column) for column in zip(*found.values(), strict=True)]}


EXPERTS = TableKind(
    "accuracy of a bank's base, of the own expert and of the routed bank", expert_tables, per_section=True
)
