"""One target, class by class: the paper's Table 3, for benchmarks whose headline is the mean over classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cosda.files import Json
from cosda.records.run import Run
from cosda.report.model.groups import NOT_FINISHED, Group, Section
from cosda.report.model.significance import against_best
from cosda.report.model.table import Cell, Row, Table, with_best
from cosda.report.tables.base import TableKind, published_for, row_of, table_of
from cosda.report.tables.pairs import BOTH, both_columns, measured, without_drop

ByClass = Mapping[int, float]  # number of a class -> its accuracy or drop; a class without images has none


def class_tables(sections: Sequence[Section]) -> list[Table]:
    """A table for each pair of source and target that is measured class by class."""
    return [
        _table(section)
        for section in sections
        if section.headline == "per-class" and len(section.domains) == 2 and section.finished
    ]


def _table(section: Section) -> Table:
    names = [str(name) for name in section.finished[0].counted[0].config["classes"]]
    columns = [column for name in names for column in both_columns(name)] + both_columns("average", average=True)
    found = {group.name: [_by_class(run) for run in group.counted] for group in section.groups}
    rows = [_row(section, group, found[group.name], names) for group in section.groups]
    outside = without_drop(section.groups)
    table = table_of(section, f"{section.benchmark}: class by class", columns, rows)
    table = with_best(replace(table, stacked=BOTH), outside)
    for j, measure in enumerate(BOTH):
        behind = {
            group.name: {
                (run.seed, number): value
                for run, classes in zip(group.counted, found[group.name], strict=True)
                for number, value in classes[j].items()
                if (group.name, measure) not in outside
            }
            for group in section.groups
        }
        average = len(columns) - len(BOTH) + j
        table = against_best(table, average, behind, "seed and class")
    return table


def _row(section: Section, group: Group, found: list[tuple[ByClass, ByClass]], names: list[str]) -> Row:
    paper = published_for(section, group)
    cells: list[Cell] = []
    for number, name in enumerate(names):
        of_class = paper.classes.get(name)
        printed = (of_class.accuracy, of_class.drop) if of_class else (None, None)
        cells += [_cell(group, [numbers[j] for numbers in found], number, printed[j]) for j in range(len(BOTH))]
    unfinished = "" if group.counted else NOT_FINISHED
    for j, printed_average in enumerate((paper.accuracy, paper.drop)):
        averages = tuple(numbers[j] for numbers in measured(group).values())
        cells.append(Cell(averages, unfinished, group.counted, printed_average))
    return row_of(group, cells)


def _cell(group: Group, by_seed: list[ByClass], number: int, printed: float | None) -> Cell:
    values = tuple(classes[number] for classes in by_seed if number in classes)
    missing = "no images of this class are measured" if by_seed else NOT_FINISHED
    return Cell(values, "" if values else missing, group.counted, printed)


def _by_class(run: Run) -> tuple[ByClass, ByClass]:
    """Accuracy on the target and drop on the source, each by class."""
    source, target = run.domains
    before, after = _accuracies(run, 0, source), _accuracies(run, 1, source)
    return _accuracies(run, 1, target), {number: before[number] - after[number] for number in before if number in after}


def _accuracies(run: Run, stage: int, domain: str) -> dict[int, float]:
    record: Json = list(run.of("accuracy", stage=stage, epoch=None, domain=domain, split="test"))[-1]
    counts = zip(record["correct"], record["images"], strict=True)
    return {number: correct / images for number, (correct, images) in enumerate(counts) if images}


CLASSES = TableKind("accuracy and drop of each class of a single target, as the paper's Table 3", class_tables)
