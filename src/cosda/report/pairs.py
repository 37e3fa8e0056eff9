"""Single-target adaptation over all pairs of a benchmark: the layout of the paper's tables.

A cell is "accuracy on the target | drop on the source". Beside the averages stand those of the same weights with the
other BatchNorm statistics, because part of what looks like forgetting is in these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cosda import metrics
from cosda.report.tables import Cell, Row, Section

Matrices = list[list[list[float]] | None]  # of one pair, one a seed


@dataclass(frozen=True)
class Pair:
    """Accuracy on the target and drop on the source over the seeds; without values where a run is missing."""

    accuracy: Cell
    drop: Cell


@dataclass(frozen=True)
class PairRow:
    """One method: each pair, and their average, for which every pair must be there with the same seeds."""

    name: str
    pairs: tuple[Pair, ...]
    average: Pair
    other_average: Pair  # with the other BatchNorm statistics


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
    rows = [_row(name, [next((r for r in s.rows if r.name == name), None) for s in sections]) for name in names]
    pairs = tuple(section.domains for section in sections)
    return PairTable(sections[0].benchmark, sections[0].select, pairs, tuple(rows))


def _row(name: str, found: list[Row | None]) -> PairRow:
    """``found`` are the rows of one method, one a pair."""
    own: list[Matrices] = [[run.matrix() for run in row.counted] if row else [] for row in found]
    other: list[Matrices] = [[run.matrix(other=True) for run in row.counted] if row else [] for row in found]
    seeds = {tuple(run.seed for run in row.counted) if row else () for row in found}
    pairs = tuple(_pair([[matrix] for matrix in matrices]) for matrices in own)
    if len(seeds) > 1:
        return PairRow(name, pairs, _pair([]), _pair([]))
    return PairRow(name, pairs, _pair(list(zip(*own, strict=True))), _pair(list(zip(*other, strict=True))))


def _pair(by_seed: Sequence[Sequence[list[list[float]] | None]]) -> Pair:
    """Means over the matrices of each seed; none where one is missing."""
    whole = [[matrix for matrix in matrices if matrix is not None] for matrices in by_seed]
    if not whole or any(len(a) < len(b) for a, b in zip(whole, by_seed, strict=True)):
        return Pair(Cell(()), Cell(()))
    accuracies = tuple(metrics.mean([matrix[1][1] for matrix in matrices]) for matrices in whole)
    drops = tuple(metrics.mean([metrics.source_drop(matrix) for matrix in matrices]) for matrices in whole)
    return Pair(Cell(accuracies), Cell(drops))
