"""Single-target adaptation over all pairs of a benchmark: the layout of the paper's tables.

A cell is "accuracy on the target | drop on the source", the mean over seeds. Beside the averages stand those of the
same weights with the other BatchNorm statistics, because part of what looks like forgetting is in these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cosda import metrics
from cosda.report.tables import Section


@dataclass(frozen=True)
class PairRow:
    """One method: (accuracy, drop) of each pair, None where a run is missing."""

    name: str
    cells: tuple[tuple[float, float] | None, ...]
    average: tuple[float, float] | None  # None unless every pair is there
    other_average: tuple[float, float] | None  # with the other BatchNorm statistics


@dataclass(frozen=True)
class PairTable:
    """All pairs of one benchmark under one protocol and selection rule."""

    benchmark: str
    select: str
    pairs: tuple[tuple[str, ...], ...]
    rows: tuple[PairRow, ...]


def pair_tables(sections: Sequence[Section]) -> list[PairTable]:
    """A table for each benchmark that has at least two pairs of source and target."""
    places: dict[tuple[str, str, str, str], list[Section]] = {}
    for section in sections:
        if len(section.domains) == 2:
            place = (section.benchmark, section.protocol, section.headline, section.select)
            places.setdefault(place, []).append(section)
    return [_table(found) for found in places.values() if len(found) > 1]


def _table(sections: list[Section]) -> PairTable:
    names = list(dict.fromkeys(row.name for section in sections for row in section.rows))
    by_name = [{row.name: row for row in section.rows} for section in sections]
    rows = []
    for name in names:
        found = [rows_of.get(name) for rows_of in by_name]
        cells = tuple(_cell([run.matrix() for run in row.counted]) if row else None for row in found)
        others = tuple(_cell([run.matrix(other=True) for run in row.counted]) if row else None for row in found)
        rows.append(PairRow(name, cells, _average(cells), _average(others)))
    pairs = tuple(section.domains for section in sections)
    return PairTable(sections[0].benchmark, sections[0].select, pairs, tuple(rows))


def _cell(matrices: Sequence[list[list[float]] | None]) -> tuple[float, float] | None:
    whole = [matrix for matrix in matrices if matrix is not None]
    if not whole or len(whole) < len(matrices):
        return None
    return metrics.mean([m[1][1] for m in whole]), metrics.mean([metrics.source_drop(m) for m in whole])


def _average(cells: Sequence[tuple[float, float] | None]) -> tuple[float, float] | None:
    whole = [cell for cell in cells if cell is not None]
    if len(whole) < len(cells):
        return None
    return metrics.mean([accuracy for accuracy, _ in whole]), metrics.mean([drop for _, drop in whole])
