"""Chains of several targets over all orders that were run: how good a method is whatever order the targets come in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cosda import metrics
from cosda.report.model.groups import Group, Section
from cosda.report.model.significance import against_best
from cosda.report.model.table import Cell, Row, Table, measure_columns, with_best
from cosda.report.tables.base import TableKind
from cosda.report.tables.joined import groups_by_name, joined_row, joined_table, mean_of

Matrices = Mapping[tuple[int, int], metrics.Matrix]  # by section and seed


def chain_tables(sections: Sequence[Section]) -> list[Table]:
    """A table for each benchmark that has at least two chains of the same number of domains, three or more."""
    places: dict[tuple[object, ...], list[Section]] = {}
    for section in sections:
        if len(section.domains) > 2:
            place = (section.benchmark, section.protocol, section.headline, section.select, len(section.domains))
            places.setdefault(place, []).append(section)
    return [_table(found) for found in places.values() if len(found) > 1]


def _table(sections: list[Section]) -> Table:
    groups = groups_by_name(sections)
    matrices = {name: _matrices(found) for name, found in groups.items()}
    rows = [_row(name, found, matrices[name], sections) for name, found in groups.items()]
    table = joined_table(sections, f"{sections[0].benchmark}: all chains", measure_columns(), rows)
    table = with_best(replace(table, notes=(_note(sections),)))
    average = metrics.MEASURES["average"]
    behind = {
        name: {key: value for key, matrix in found.items() if (value := average.compute(matrix)) is not None}
        for name, found in matrices.items()
    }
    return against_best(table, table.place(average.title, "average"), behind, "seed and chain")


def _matrices(groups: Sequence[Group | None]) -> Matrices:
    return {
        (place, run.seed): matrix
        for place, group in enumerate(groups)
        if group
        for run, matrix in zip(group.counted, group.matrices, strict=True)
    }


def _row(name: str, groups: Sequence[Group | None], matrices: Matrices, sections: Sequence[Section]) -> Row:
    """The mean over the chains for each seed that has them all."""
    everywhere = range(len(sections))
    known = {seed for _, seed in matrices}
    complete = sorted(seed for seed in known if all((place, seed) in matrices for place in everywhere))
    runs = tuple(run for group in groups if group for run in group.counted if run.seed in complete)
    cells = []
    for measure in metrics.MEASURES.values():
        found = [[measure.compute(matrices[place, seed]) for place in everywhere] for seed in complete]
        values = tuple(mean for numbers in found if (mean := mean_of(numbers)) is not None)
        reason = measure.undefined if complete else "no seed has all the chains"
        cells.append(Cell(values, "" if values else reason, runs))
    return joined_row(name, groups, sections, len(complete), cells)


def _note(sections: Sequence[Section]) -> str:
    names = "; ".join(" → ".join(section.domains) for section in sections)
    return f"Means over {len(sections)} chains of each seed that has them all, then over these seeds: {names}."


CHAINS = TableKind("every measure as the mean over several chains of a benchmark", chain_tables)
