"""Rows of tables over several sections: the groups of one name, one a section."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cosda import metrics
from cosda.report.model.groups import Group, Section
from cosda.report.model.names import rank
from cosda.report.model.table import Cell, Column, Row, Table
from cosda.report.tables.base import table_of


def joined_table(sections: Sequence[Section], title: str, columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    """A table over several sections, which have no chain and no data in common."""
    return replace(table_of(sections[0], title, columns, rows), domains=(), fingerprint="")


def by_benchmark(sections: Sequence[Section]) -> list[list[Section]]:
    """The sections with a single target that may stand in one table, ordered by target and source."""
    places: dict[tuple[str, str, str, str], list[Section]] = {}
    for section in sections:
        if len(section.domains) == 2:
            place = (section.benchmark, section.protocol, section.headline, section.select)
            places.setdefault(place, []).append(section)
    return [sorted(found, key=lambda section: section.domains[::-1]) for found in places.values()]


def groups_by_name(sections: Sequence[Section]) -> dict[str, list[Group | None]]:
    """For each name its groups, one a section; None where a section has none of that name."""
    first: dict[str, Group] = {}
    for section in sections:
        for group in section.groups:
            first.setdefault(group.name, group)
    names = sorted(first, key=lambda name: (rank(first[name].runs[0]), name))
    return {name: [next((g for g in s.groups if g.name == name), None) for s in sections] for name in names}


def joined_row(
    name: str, groups: Sequence[Group | None], sections: Sequence[Section], complete: int, cells: Sequence[Cell]
) -> Row:
    """A row over several sections; ``complete`` seeds have a finished run in each."""
    wanted = len({run.seed for group in groups if group for run in group.runs})
    problems = [
        f"{' → '.join(section.domains)}: {problem}"
        for group, section in zip(groups, sections, strict=True)
        for problem in (group.problems if group else ())
    ]
    return Row(name, tuple(cells), seeds_text(complete, wanted), problems=tuple(problems))


def seeds_text(complete: int, wanted: int) -> str:
    """How many seeds stand behind a row, and of how many if not all."""
    return str(complete) if complete == wanted else f"{complete} of {wanted}"


def mean_of(numbers: Sequence[float | None]) -> float | None:
    """The mean, if every number is there."""
    known = [number for number in numbers if number is not None]
    return metrics.mean(known) if known and len(known) == len(numbers) else None
