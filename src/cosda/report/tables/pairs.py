"""Single-target adaptation over all pairs of a benchmark: the paper's Tables 1 and 2.

A pair has the accuracy on the target and the drop on the source. Beside the average stands that of the same weights
with the other BatchNorm statistics, because part of what looks like forgetting is in these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cosda import metrics
from cosda.records.run import Run
from cosda.report.model.groups import DAMAGED, NOT_FINISHED, Group, Section
from cosda.report.model.published import label_of, published
from cosda.report.model.significance import against_best
from cosda.report.model.table import Cell, Column, Row, Table, with_best
from cosda.report.tables.base import TableKind
from cosda.report.tables.joined import by_benchmark, groups_by_name, joined_row, joined_table, mean_of

MANY = 12  # a table of more pairs has an average for each target, as the paper's Table 1
BOTH = ("accuracy", "drop")
NOTE = (
    "Accuracy on the target and drop on the source, in percentage points. An average is taken over the pairs of each "
    "seed that has them all, then over these seeds."
)
OTHER_NOTE = (
    "Last columns: the same weights with the other BatchNorm statistics (merged over domains, or the target's own)."
)

Numbers = tuple[float, float]  # accuracy on the target, drop on the source
Measured = Mapping[int, Numbers]  # of one pair, by seed
Place = tuple[int, ...]  # the sections that a column is the mean of


def both_columns(title: str, block: str = "", domains: tuple[str, ...] = (), average: bool = False) -> list[Column]:
    """A column for the accuracy and one for the drop."""
    accuracy = Column(title, "accuracy", block=block, domains=domains, average=average)
    return [accuracy, replace(accuracy, measure="drop", larger_is_better=False)]


def measured(group: Group | None) -> dict[int, Numbers]:
    """Accuracy and drop of each seed of a single-target group."""
    return {} if group is None else {r.seed: _numbers(m) for r, m in zip(group.counted, group.matrices, strict=True)}


def without_drop(groups: Sequence[Group | None]) -> set[tuple[str, str]]:
    """Rows of the source model as it is, which has no drop to be compared."""
    return {(group.name, "drop") for group in groups if group and group.runs[0].config.get("method") == "source"}


def pair_tables(sections: Sequence[Section]) -> list[Table]:
    """A table for each benchmark that has at least two pairs of source and target."""
    return [_table(found) for found in by_benchmark(sections) if len(found) > 1]


def _table(sections: list[Section]) -> Table:
    places, groups = _places(sections), groups_by_name(sections)
    titles, legend = _titles(sections)
    columns = [column for place in places for column in _columns(titles, sections, place)]
    rows = [_row(name, found, sections, places) for name, found in groups.items()]
    table = joined_table(sections, f"{sections[0].benchmark}: all pairs", columns, rows)
    outside = {pair for found in groups.values() for pair in without_drop(found)}
    table = with_best(replace(table, stacked=BOTH, notes=(*legend, NOTE)), outside)
    for j, measure in enumerate(BOTH):
        behind = {name: {} if (name, measure) in outside else _by_key(found, j) for name, found in groups.items()}
        average = len(columns) - len(BOTH) + j
        table = against_best(table, average, behind, "seed and pair")
    return _with_other_statistics(table, groups)


def _with_other_statistics(table: Table, groups: Mapping[str, list[Group | None]]) -> Table:
    """Two last columns, where runs recorded what they need: the same weights with the other BatchNorm statistics."""
    other = {name: [_other(group) for group in found] for name, found in groups.items()}
    if not any(values for found in other.values() for values in found):
        return table
    missing = "the other statistics are not recorded for all pairs of any seed"
    rows = []
    for row in table.rows:
        found = groups[row.name]
        cells = _cells(tuple(range(len(found))), other[row.name], _runs(found), missing)
        rows.append(replace(row, cells=(*row.cells, *cells)))
    columns = (*table.columns, *both_columns("average, other statistics", average=True))
    return replace(table, columns=columns, rows=tuple(rows), notes=(*table.notes, OTHER_NOTE))


def _places(sections: list[Section]) -> list[Place]:
    """Which sections each column is the mean of: single pairs, in large tables those of a target, at last all."""
    places: list[Place] = []
    for target in dict.fromkeys(section.domains[1] for section in sections):
        block = tuple(i for i, section in enumerate(sections) if section.domains[1] == target)
        places += [(i,) for i in block]
        if len(sections) > MANY and 1 < len(block) < len(sections):
            places.append(block)
    return [*places, tuple(range(len(sections)))]


def _titles(sections: Sequence[Section]) -> tuple[list[str], tuple[str, ...]]:
    """Short titles of pairs (A2D) with a legend, where initials tell the domains apart; else the names."""
    domains = [section.domains for section in sections]
    names = sorted({name for pair in domains for name in pair})
    initials = {name: name[:1].upper() for name in names}
    if len(set(initials.values())) < len(names) or not all(map(str.isalpha, initials.values())):
        titles, legend = [" → ".join(pair) for pair in domains], ""
    else:
        titles = ["2".join(initials[name] for name in pair) for pair in domains]
        legend = ", ".join(f"{initial}: {name}" for name, initial in initials.items()) + "."
    # One pair twice: other images under the same names.
    versions = [f" ({section.fingerprint})" if domains.count(section.domains) > 1 else "" for section in sections]
    return [title + version for title, version in zip(titles, versions, strict=True)], (legend,) if legend else ()


def _columns(titles: list[str], sections: list[Section], place: Place) -> list[Column]:
    if len(place) == 1:
        domains = sections[place[0]].domains
        return both_columns(titles[place[0]], block=domains[1], domains=domains)
    if len(place) == len(sections):
        return both_columns("average", average=True)
    target = sections[place[0]].domains[1]
    return both_columns(f"average, {target}", block=target, average=True)


def _row(name: str, groups: list[Group | None], sections: list[Section], places: list[Place]) -> Row:
    own, runs = [measured(group) for group in groups], _runs(groups)
    label = next(label_of(group.runs[0]) for group in groups if group)
    papers = [published(section.benchmark, section.domains, label) for section in sections]
    cells: list[Cell] = []
    for place in places:
        missing = "no seed has all the pairs"
        if len(place) == 1:
            missing = NOT_FINISHED if groups[place[0]] else "no run"
        printed = [(papers[i].accuracy, papers[i].drop) for i in place]
        cells += _cells(place, own, runs, missing, printed)
    return joined_row(name, groups, sections, len(_complete(own, range(len(sections)))), cells)


def _runs(groups: list[Group | None]) -> list[dict[int, Run]]:
    return [{run.seed: run for run in group.counted} if group else {} for group in groups]


def _cells(
    place: Place,
    values: Sequence[Measured],
    runs: Sequence[Mapping[int, Run]],
    missing: str,
    printed: Sequence[tuple[float | None, float | None]] = (),
) -> list[Cell]:
    """Accuracy and drop over the pairs of a column: the mean for each seed that has them all."""
    seeds = _complete(values, place)
    behind = tuple(runs[i][seed] for i in place for seed in seeds)
    return [
        Cell(
            values=tuple(metrics.mean([values[i][seed][j] for i in place]) for seed in seeds),
            reason="" if seeds else missing,
            runs=behind,
            published=mean_of([numbers[j] for numbers in printed]),
        )
        for j in range(len(BOTH))
    ]


def _complete(values: Sequence[Measured], place: Sequence[int]) -> list[int]:
    """The seeds that have every pair of a column."""
    return sorted(set.intersection(*(set(values[i]) for i in place)))


def _other(group: Group | None) -> dict[int, Numbers]:
    """The same weights with the other BatchNorm statistics, where these are recorded."""
    found = {}
    for run in group.counted if group else ():
        try:
            matrix = run.matrix(other=True)
        except DAMAGED:  # the numbers of the table itself are whole, or the run would not be counted
            matrix = None
        if matrix is not None:
            found[run.seed] = _numbers(matrix)
    return found


def _numbers(matrix: metrics.Matrix) -> Numbers:
    return matrix[1][1], metrics.source_drop(matrix)


def _by_key(groups: list[Group | None], j: int) -> dict[tuple[int, int], float]:
    """What stands behind an average, by pair and seed."""
    return {(i, seed): numbers[j] for i, group in enumerate(groups) for seed, numbers in measured(group).items()}


PAIRS = TableKind("accuracy and drop on all pairs of a benchmark, as the paper's Tables 1 and 2", pair_tables)
