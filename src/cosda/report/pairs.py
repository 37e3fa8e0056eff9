"""Single-target adaptation over all pairs of a benchmark: the paper's Tables 1 and 2.

A cell holds the accuracy on the target and the drop on the source. Beside the average stands that of the same weights
with the other BatchNorm statistics, because part of what looks like forgetting is in these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cosda import metrics
from cosda.records.run import Run
from cosda.report import wording
from cosda.report.grids import ACCURACY, DROP, Entry, Grid, Heading, Line, with_best
from cosda.report.published import label_of, published
from cosda.report.significance import with_comparisons
from cosda.report.tables import DAMAGED, Cell, Row, Section, rank

MANY = 12  # a table of more pairs has an average for each target, as the paper's Table 1
BOTH = (ACCURACY, DROP)
Numbers = tuple[float, float]  # accuracy on the target, drop on the source
Measured = Mapping[int, Numbers]  # of one pair, by seed


def by_benchmark(sections: Sequence[Section]) -> list[list[Section]]:
    """The sections with a single target that may stand in one table, ordered by target and source."""
    places: dict[tuple[str, str, str, str], list[Section]] = {}
    for section in sections:
        if len(section.domains) == 2:
            place = (section.benchmark, section.protocol, section.headline, section.select)
            places.setdefault(place, []).append(section)
    return [sorted(found, key=lambda section: section.domains[::-1]) for found in places.values()]


def rows_by_name(sections: Sequence[Section]) -> dict[str, list[Row | None]]:
    """For each name of a row its rows, one a section; None where a section has none of that name."""
    first: dict[str, Row] = {}
    for section in sections:
        for row in section.rows:
            first.setdefault(row.name, row)
    names = sorted(first, key=lambda name: (rank(first[name].runs[0]), name))
    return {name: [next((row for row in s.rows if row.name == name), None) for s in sections] for name in names}


def measured(row: Row | None) -> dict[int, Numbers]:
    """Accuracy and drop of each seed of a single-target row."""
    return {} if row is None else {run.seed: _numbers(m) for run, m in zip(row.counted, row.matrices, strict=True)}


def pair_grids(sections: Sequence[Section]) -> list[Grid]:
    """A table for each benchmark that has at least two pairs of source and target."""
    return [_grid(found) for found in by_benchmark(sections) if len(found) > 1]


def without_drop(rows: Sequence[Row | None]) -> set[tuple[str, str]]:
    """Rows of the source model as it is, which has no drop to be compared."""
    return {(row.name, DROP.name) for row in rows if row and row.runs[0].config.get("method") == "source"}


def _grid(sections: list[Section]) -> Grid:
    places = _places(sections)
    first = sections[0]
    rows = rows_by_name(sections)
    titles, legend = wording.pairs(sections)
    grid = Grid(
        kind="pairs",
        title=f"{first.benchmark}: all pairs",
        benchmark=first.benchmark,
        domains=(),
        protocol=first.protocol,
        headline=first.headline,
        select=first.select,
        fingerprint="",
        columns=tuple(_heading(titles, sections, place) for place in places),
        rows=tuple(_line(name, found, sections, places) for name, found in rows.items()),
        notes=(*legend, wording.PAIRS),
    )
    outside = {pair for found in rows.values() for pair in without_drop(found)}
    behind = {
        name: [{} if (name, BOTH[j].name) in outside else _by_key(found, j) for j in range(2)]
        for name, found in rows.items()
    }
    grid = with_comparisons(with_best(grid, outside), len(places) - 1, behind, "seed and pair")
    return _with_other_statistics(grid, rows)


def _with_other_statistics(grid: Grid, rows: Mapping[str, list[Row | None]]) -> Grid:
    """A last column, where runs recorded what it needs: the same weights with the other BatchNorm statistics."""
    other = {name: [_other(row) for row in found] for name, found in rows.items()}
    if not any(values for found in other.values() for values in found):
        return grid
    lines = []
    for line in grid.rows:
        everywhere = tuple(range(len(rows[line.name])))
        missing = "the other statistics are not recorded for all pairs of any seed"
        found = _entries(everywhere, other[line.name], _runs(rows[line.name]), missing, [])
        lines.append(replace(line, entries=(*line.entries, found)))
    heading = Heading("average, other statistics", BOTH, average=True)
    return replace(grid, columns=(*grid.columns, heading), rows=tuple(lines), notes=(*grid.notes, wording.OTHER))


def _places(sections: list[Section]) -> list[tuple[int, ...]]:
    """Which sections each column is the mean of: single pairs, in large tables those of a target, at last all."""
    places: list[tuple[int, ...]] = []
    for target in dict.fromkeys(section.domains[1] for section in sections):
        block = tuple(i for i, section in enumerate(sections) if section.domains[1] == target)
        places += [(i,) for i in block]
        if len(sections) > MANY and 1 < len(block) < len(sections):
            places.append(block)
    return [*places, tuple(range(len(sections)))]


def _heading(titles: list[str], sections: list[Section], place: tuple[int, ...]) -> Heading:
    if len(place) == 1:
        domains = sections[place[0]].domains
        return Heading(titles[place[0]], BOTH, block=domains[1], domains=domains)
    if len(place) == len(sections):
        return Heading("average", BOTH, average=True)
    target = sections[place[0]].domains[1]
    return Heading(f"average, {target}", BOTH, block=target, average=True)


def _line(name: str, rows: list[Row | None], sections: list[Section], places: list[tuple[int, ...]]) -> Line:
    own = [measured(row) for row in rows]
    runs = _runs(rows)
    label = next(label_of(row.runs[0]) for row in rows if row)
    printed = [published(section.benchmark, section.domains, label) for section in sections]
    entries = []
    for place in places:
        missing = _missing(rows[place[0]]) if len(place) == 1 else "no seed has all the pairs"
        papers = [(printed[i].accuracy, printed[i].drop) for i in place]
        entries.append(_entries(place, own, runs, missing, papers))
    return line_over(name, rows, sections, len(_common(own, range(len(sections)))), entries)


def line_over(
    name: str,
    rows: Sequence[Row | None],
    sections: Sequence[Section],
    whole: int,
    entries: Sequence[tuple[Entry, ...]],
) -> Line:
    """A line of a table over several sections; ``whole`` seeds have a finished run in each."""
    wanted = len({run.seed for row in rows if row for run in row.runs})
    problems = [
        f"{' → '.join(section.domains)}: {wording.problem(problem)}"
        for row, section in zip(rows, sections, strict=True)
        for problem in (row.problems if row else ())
    ]
    seeds = str(whole) if whole == wanted else f"{whole} of {wanted}"
    return Line(name, seeds, tuple(entries), problems=tuple(problems))


def _runs(rows: list[Row | None]) -> list[dict[int, Run]]:
    return [{run.seed: run for run in row.counted} if row else {} for row in rows]


def _entries(
    place: tuple[int, ...],
    values: Sequence[Measured],
    runs: Sequence[Mapping[int, Run]],
    missing: str,
    printed: Sequence[tuple[float | None, float | None]],
) -> tuple[Entry, ...]:
    """Accuracy and drop over the pairs of a column: the mean for each seed that has them all."""
    seeds = _common(values, place)
    behind = tuple(runs[i][seed] for i in place for seed in seeds)
    reason = "" if seeds else missing
    entries = []
    for j in range(2):
        cell = Cell(tuple(metrics.mean([values[i][seed][j] for i in place]) for seed in seeds), reason)
        entries.append(Entry(cell, behind, mean_of([numbers[j] for numbers in printed])))
    return tuple(entries)


def mean_of(numbers: Sequence[float | None]) -> float | None:
    """The mean, if every number is there."""
    known = [number for number in numbers if number is not None]
    return metrics.mean(known) if known and len(known) == len(numbers) else None


def _common(values: Sequence[Measured], place: Sequence[int]) -> list[int]:
    return sorted(set.intersection(*(set(values[i]) for i in place)))


def _other(row: Row | None) -> dict[int, Numbers]:
    """The same weights with the other BatchNorm statistics, where these are recorded."""
    found = {}
    for run in row.counted if row else ():
        try:
            matrix = run.matrix(other=True)
        except DAMAGED:  # the numbers of the table itself are whole, or the run would not be counted
            matrix = None
        if matrix is not None:
            found[run.seed] = _numbers(matrix)
    return found


def _numbers(matrix: metrics.Matrix) -> Numbers:
    return matrix[1][1], metrics.source_drop(matrix)


def _missing(row: Row | None) -> str:
    return "no run" if row is None else wording.NOT_FINISHED


def _by_key(rows: list[Row | None], measure: int) -> dict[object, float]:
    """What stands behind an average, by pair and seed."""
    return {(i, seed): numbers[measure] for i, row in enumerate(rows) for seed, numbers in measured(row).items()}
