"""All tables of a report, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cosda.records.run import Run
from cosda.report.ablations import ablation_grids
from cosda.report.chains import chain_grids
from cosda.report.chapters import section_grids
from cosda.report.grids import Grid
from cosda.report.notes import with_notes
from cosda.report.pairs import pair_grids
from cosda.report.perclass import class_grids
from cosda.report.rules import rule_grids
from cosda.report.tables import Problem, Section, Tables, build


@dataclass(frozen=True)
class Chapter:
    """A section and its tables."""

    section: Section
    grids: tuple[Grid, ...]


@dataclass(frozen=True)
class Contents:
    """What a report shows in numbers."""

    tables: Tables
    across: tuple[Grid, ...]  # tables over several sections: pairs, chains, classes, ablations, selection rules
    chapters: tuple[Chapter, ...]

    @property
    def left_out(self) -> tuple[Problem, ...]:
        """Runs that belong to no section."""
        return self.tables.left_out


def contents(runs: Sequence[Run], select: str | None = None) -> Contents:
    """The tables of all runs; under another selection rule, if ``select`` names one."""
    tables = build(runs, select)
    sections = tables.sections
    kinds = (pair_grids, chain_grids, class_grids, ablation_grids, rule_grids)
    across = [grid for grids in kinds for grid in grids(sections)]
    chapters = [Chapter(s, tuple(map(with_notes, section_grids(s)))) for s in sections]
    return Contents(tables, tuple(map(with_notes, across)), tuple(chapters))
