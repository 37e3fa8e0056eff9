"""What each part of a method is for: the method without it, beside the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cosda import metrics
from cosda.records.run import Run
from cosda.report import wording
from cosda.report.chapters import empty_grid
from cosda.report.grids import ACCURACY, DROP, Entry, Grid, Heading, Line, Measure, with_best
from cosda.report.pairs import by_benchmark, mean_of, rows_by_name
from cosda.report.published import label_of, published
from cosda.report.significance import compare, mark
from cosda.report.tables import Cell, Row, Section

MEASURES = (ACCURACY, DROP, Measure("bwt", "BWT"))  # the names are those of the published numbers too
Key = tuple[int, int]  # section, seed
Numbers = tuple[float, ...]  # one a measure


def ablation_grids(sections: Sequence[Section]) -> list[Grid]:
    """Tables of the methods that were also run without a part: over all pairs of a benchmark, and for each chain."""
    chains = [[section] for section in sections if len(section.domains) > 2]
    scopes = [*by_benchmark(sections), *chains]
    return [grid for scope in scopes for family in _families(scope) if (grid := _grid(scope, family)) is not None]


def _families(sections: list[Section]) -> list[dict[str, list[Row | None]]]:
    """The rows of each method that has both: the whole first, then its ablations."""
    groups: dict[tuple[object, ...], dict[str, list[Row | None]]] = {}
    for name, rows in rows_by_name(sections).items():
        config = next(row.runs[0].config for row in rows if row)
        adapt = config.get("settings", {}).get("adapt", {})
        whole = (config.get("method"), config.get("variant"), adapt.get("carry"), adapt.get("carry_share"))
        groups.setdefault(whole, {})[name] = rows
    return [family for family in map(_whole_first, groups.values()) if family]


def _whole_first(group: dict[str, list[Row | None]]) -> dict[str, list[Row | None]]:
    whole = [name for name, rows in group.items() if not _ablation(rows)]
    ablated = [name for name, rows in group.items() if _ablation(rows)]
    # Of several rows of the whole method with different settings none is *the* whole.
    return {name: group[name] for name in [*whole, *ablated]} if len(whole) == 1 and ablated else {}


def _ablation(rows: list[Row | None]) -> str:
    return next(str(row.runs[0].config.get("ablation") or "") for row in rows if row)


def _grid(sections: list[Section], family: dict[str, list[Row | None]]) -> Grid | None:
    """A line for each row of a family, the whole method first; None while there is nothing to compare."""
    found = {name: _numbers(rows) for name, rows in family.items()}
    # Averages may be compared only over the same pairs: those that every row with numbers has.
    finished = [{place for place, _ in numbers} for numbers in found.values() if numbers]
    places = sorted(set.intersection(*finished)) if finished else []
    whole = next(iter(family))
    if not places or not found[whole]:
        return None
    first, single = sections[0], len(sections[0].domains) == 2
    measures = MEASURES[:2] if single else MEASURES
    changes = [replace(m, title=f"{m.title}, change", higher_is_better=None, signed=True) for m in measures]
    headings = tuple(Heading(measure.title, (measure,)) for measure in (*measures, *changes))
    members = {name: _member(rows, sections, places) for name, rows in family.items()}
    lines = [_line(name, member, members[whole], len(measures)) for name, member in members.items()]
    grid = replace(
        with_best(empty_grid(first, "ablations", headings, tuple(lines))),
        title=f"{first.benchmark}: {whole} without its parts",
        domains=first.domains if len(sections) == 1 else (),
        fingerprint=first.fingerprint if len(sections) == 1 else "",
        notes=(wording.ablations(whole, [sections[i].domains for i in places]),),
    )
    for j, measure in enumerate((ACCURACY, DROP)):
        values = {
            name: {key: of_run[j] for key, of_run in numbers.items() if key[0] in places}
            for name, numbers in found.items()
        }
        column = len(measures) + j
        paired_by = "seed and pair" if single else "seed"
        grid = mark(grid, column, 0, compare(headings[column].title, measure.name, values, whole, paired_by))
    return grid


def _numbers(rows: list[Row | None]) -> dict[Key, Numbers]:
    """What is measured of every run, by section and seed."""
    return {
        (place, run.seed): _of_matrix(matrix)
        for place, row in enumerate(rows)
        if row
        for run, matrix in zip(row.counted, row.matrices, strict=True)
    }


def _of_matrix(matrix: metrics.Matrix) -> Numbers:
    accuracy, transfer = metrics.adaptation(matrix), metrics.backward_transfer(matrix)
    assert accuracy is not None  # the chains of these tables have a target
    assert transfer is not None
    return accuracy, metrics.source_drop(matrix), transfer


@dataclass(frozen=True)
class Member:
    """One row: means over the pairs for each seed that has them all, and over the paper's numbers."""

    by_seed: Mapping[int, Numbers]
    papers: tuple[float | None, ...]
    runs: tuple[Run, ...]
    wanted: int  # seeds, finished or not
    problems: tuple[str, ...]


def _member(rows: list[Row | None], sections: list[Section], places: list[int]) -> Member:
    numbers = _numbers(rows)
    seeds = sorted(seed for seed in {seed for _, seed in numbers} if all((i, seed) in numbers for i in places))
    found = [row for i in places if (row := rows[i])]
    label = next(label_of(row.runs[0]) for row in rows if row)
    printed = [published(sections[i].benchmark, sections[i].domains, label) for i in places]
    return Member(
        by_seed={s: tuple(map(metrics.mean, zip(*(numbers[i, s] for i in places), strict=True))) for s in seeds},
        papers=tuple(mean_of([getattr(one, measure.name) for one in printed]) for measure in MEASURES),
        runs=tuple(run for row in found for run in row.counted if run.seed in seeds),
        wanted=len({run.seed for row in rows if row for run in row.runs}),
        problems=tuple(wording.problem(problem) for row in found for problem in row.problems),
    )


def _line(name: str, member: Member, whole: Member, measures: int) -> Line:
    own, full = member.by_seed, whole.by_seed
    entries = []
    for j in range(measures):
        cell = Cell(tuple(numbers[j] for numbers in own.values()), "" if own else wording.NOT_FINISHED)
        entries.append(Entry(cell, member.runs, member.papers[j]))
    for j in range(measures):
        if member is whole:
            entries.append(Entry(Cell((), wording.WHOLE)))
            continue
        changes = tuple(own[seed][j] - full[seed][j] for seed in own if seed in full)
        paper, full_paper = member.papers[j], whole.papers[j]
        printed = None if paper is None or full_paper is None else paper - full_paper
        entries.append(Entry(Cell(changes, "" if changes else wording.NO_SHARED_SEED), member.runs, printed))
    seeds = str(len(own)) if len(own) == member.wanted else f"{len(own)} of {member.wanted}"
    return Line(name, seeds, tuple((entry,) for entry in entries), problems=member.problems)
