"""All tables of a report, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cosda.records.run import Run
from cosda.report.model.adaptations import Adaptation, split_adaptations
from cosda.report.model.groups import Problem, Section, group_runs
from cosda.report.model.table import Table
from cosda.report.tables import TABLES
from cosda.report.tables.adaptations import overview, tables_of
from cosda.report.tables.notes import section_notes, with_notes


@dataclass(frozen=True)
class Chapter:
    """A section and its tables."""

    section: Section
    tables: tuple[Table, ...]
    notes: tuple[str, ...]  # why cells are empty, and which seeds are missing


@dataclass(frozen=True)
class JudgedRun:
    """An adaptation without labels and its tables."""

    adaptation: Adaptation
    tables: tuple[Table, ...]


@dataclass(frozen=True)
class Contents:
    """What a report shows in numbers."""

    runs: int  # how many there are, those left out included
    overview: tuple[Table, ...]  # of all adaptations without labels
    judged: tuple[JudgedRun, ...]
    across: tuple[Table, ...]  # tables over several sections
    chapters: tuple[Chapter, ...]
    left_out: tuple[Problem, ...]  # runs that belong to no section

    @property
    def sections(self) -> list[Section]:
        """The sections of all chapters."""
        return [chapter.section for chapter in self.chapters]

    @property
    def tables(self) -> list[Table]:
        """Every table, in the order of the report."""
        judged = [table for one in self.judged for table in one.tables]
        return [*self.overview, *judged, *self.across, *(table for one in self.chapters for table in one.tables)]


def contents(runs: Sequence[Run], select: str | None = None) -> Contents:
    """The tables of all runs; under another selection rule, if ``select`` names one."""
    adaptations, others = split_adaptations(runs)
    judged = tuple(JudgedRun(adaptation, tuple(tables_of(adaptation))) for adaptation in adaptations)
    grouped = group_runs(others, select)
    across = [with_notes(table, empty_cells=True) for table in _tables(grouped.sections, per_section=False)]
    chapters = []
    for section in grouped.sections:
        tables = [with_notes(table, empty_cells=False) for table in _tables([section], per_section=True)]
        chapters.append(Chapter(section, tuple(tables), section_notes(section, tables)))
    return Contents(len(runs), tuple(overview(adaptations)), judged, tuple(across), tuple(chapters), grouped.left_out)


def _tables(sections: Sequence[Section], per_section: bool) -> list[Table]:
    kinds = {name: kind for name, kind in TABLES.items() if kind.per_section is per_section}
    return [replace(table, kind=name) for name, kind in kinds.items() for table in kind.make(sections)]
