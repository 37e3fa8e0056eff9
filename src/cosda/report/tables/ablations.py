"""What each part of a method contributes: the method without it, beside the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cosda import metrics
from cosda.records.run import Run
from cosda.report.model.groups import NOT_FINISHED, Group, Section
from cosda.report.model.published import label_of, published
from cosda.report.model.significance import against
from cosda.report.model.table import Cell, Column, Row, Table, with_best
from cosda.report.tables.base import TableKind, table_of
from cosda.report.tables.joined import by_benchmark, groups_by_name, joined_table, mean_of, seeds_text

WHOLE = "this is the whole method"  # whose change against itself is left empty
# Of single targets the first two: BWT is minus the drop there. The names are those of the published numbers too.
COLUMNS = (Column("accuracy", "accuracy"), Column("drop", "drop", larger_is_better=False), Column("BWT", "bwt"))

Key = tuple[int, int]  # section, seed
Numbers = tuple[float, ...]  # one for each of COLUMNS
Family = dict[str, list[Group | None]]  # the whole method first, then its ablations; of each, a group a section


def ablation_tables(sections: Sequence[Section]) -> list[Table]:
    """Tables of the methods that were also run without a part: over all pairs of a benchmark, and for each chain."""
    chains = [[section] for section in sections if len(section.domains) > 2]
    scopes = [*by_benchmark(sections), *chains]
    return [table for scope in scopes for family in _families(scope) if (table := _table(scope, family)) is not None]


def _families(sections: list[Section]) -> list[Family]:
    """Each method that was run both whole and without a part."""
    families: dict[tuple[object, ...], Family] = {}
    for name, groups in groups_by_name(sections).items():
        config = next(group.runs[0].config for group in groups if group)
        adapt = config.get("settings", {}).get("adapt", {})
        method = (config.get("method"), config.get("variant"), adapt.get("carry"))
        families.setdefault(method, {})[name] = groups
    return [ordered for family in families.values() if (ordered := _whole_first(family))]


def _whole_first(family: Family) -> Family:
    whole = [name for name, groups in family.items() if not _ablation(groups)]
    ablated = [name for name, groups in family.items() if _ablation(groups)]
    # Where the whole method has several groups of settings, none of them is *the* whole.
    return {name: family[name] for name in [*whole, *ablated]} if len(whole) == 1 and ablated else {}


def _ablation(groups: list[Group | None]) -> str:
    return next(str(group.runs[0].config.get("ablation") or "") for group in groups if group)


def _table(sections: list[Section], family: Family) -> Table | None:
    """A row for each member of a family; None while there is nothing to compare."""
    found = {name: _numbers(groups) for name, groups in family.items()}
    # Averages may be compared only over the same pairs: those that every row with numbers has.
    finished = [{place for place, _ in numbers} for numbers in found.values() if numbers]
    places = sorted(set.intersection(*finished)) if finished else []
    whole = next(iter(family))
    if not places or not found[whole]:
        return None
    single = len(sections[0].domains) == 2
    columns = COLUMNS[:2] if single else COLUMNS
    changes = [replace(c, title=f"{c.title}, change", larger_is_better=None, signed=True) for c in columns]
    members = {name: _member(groups, sections, places) for name, groups in family.items()}
    rows = [_row(name, member, members[whole], len(columns)) for name, member in members.items()]
    title = f"{sections[0].benchmark}: {whole} without its parts"
    content = title, [*columns, *changes], rows
    table = table_of(sections[0], *content) if len(sections) == 1 else joined_table(sections, *content)
    table = with_best(replace(table, notes=(_note(whole, [sections[i].domains for i in places]),)))
    for j in range(2):  # accuracy and drop
        values = {
            name: {key: numbers_of_run[j] for key, numbers_of_run in numbers.items() if key[0] in places}
            for name, numbers in found.items()
        }
        table = against(table, len(columns) + j, values, whole, "seed and pair" if single else "seed")
    return table


def _numbers(groups: list[Group | None]) -> dict[Key, Numbers]:
    """The numbers of every run, by section and seed."""
    return {
        (place, run.seed): _of_matrix(matrix)
        for place, group in enumerate(groups)
        if group
        for run, matrix in zip(group.counted, group.matrices, strict=True)
    }


def _of_matrix(matrix: metrics.Matrix) -> Numbers:
    accuracy, transfer = metrics.adaptation(matrix), metrics.backward_transfer(matrix)
    assert accuracy is not None  # the chains of these tables have a target
    assert transfer is not None
    return accuracy, metrics.source_drop(matrix), transfer


@dataclass(frozen=True)
class Member:
    """The whole method or one ablation: means over the pairs for each seed that has them all, and the paper's."""

    by_seed: Mapping[int, Numbers]
    papers: tuple[float | None, ...]
    runs: tuple[Run, ...]
    wanted: int  # seeds, finished or not
    problems: tuple[str, ...]


def _member(groups: list[Group | None], sections: list[Section], places: list[int]) -> Member:
    numbers = _numbers(groups)
    seeds = sorted(seed for seed in {seed for _, seed in numbers} if all((i, seed) in numbers for i in places))
    found = [group for i in places if (group := groups[i])]
    label = next(label_of(group.runs[0]) for group in groups if group)
    printed = [published(sections[i].benchmark, sections[i].domains, label) for i in places]
    return Member(
        by_seed={s: tuple(map(metrics.mean, zip(*(numbers[i, s] for i in places), strict=True))) for s in seeds},
        papers=tuple(mean_of([getattr(one, column.measure) for one in printed]) for column in COLUMNS),
        runs=tuple(run for group in found for run in group.counted if run.seed in seeds),
        wanted=len({run.seed for group in groups if group for run in group.runs}),
        problems=tuple(str(problem) for group in found for problem in group.problems),
    )


def _row(name: str, member: Member, whole: Member, columns: int) -> Row:
    own, full = member.by_seed, whole.by_seed
    cells = []
    for j in range(columns):
        values = tuple(numbers[j] for numbers in own.values())
        cells.append(Cell(values, "" if own else NOT_FINISHED, member.runs, member.papers[j]))
    for j in range(columns):
        if member is whole:
            cells.append(Cell((), WHOLE))
            continue
        changes = tuple(own[seed][j] - full[seed][j] for seed in own if seed in full)
        paper, full_paper = member.papers[j], whole.papers[j]
        printed = None if paper is None or full_paper is None else paper - full_paper
        cells.append(Cell(changes, "" if changes else "no seed has both", member.runs, printed))
    return Row(name, tuple(cells), seeds_text(len(own), member.wanted), problems=member.problems)


def _note(whole: str, domains: Sequence[tuple[str, ...]]) -> str:
    scope = f"the average of {len(domains)} pairs" if len(domains) > 1 else " → ".join(domains[0])
    words = "on the target" if len(domains[0]) == 2 else "on each target right after adapting to it"
    return (
        f"Over {scope}: accuracy {words}, drop on the source. Change: against {whole}, over the seeds that both have."
    )


ABLATIONS = TableKind("a method without each of its parts, and the change against the whole", ablation_tables)
