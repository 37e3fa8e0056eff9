"""One target, class by class: the paper's Table 3, for benchmarks whose headline is the mean over classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cosda.files import Json
from cosda.records.run import Run
from cosda.report import wording
from cosda.report.chapters import empty_grid
from cosda.report.grids import ACCURACY, DROP, Entry, Grid, Heading, Line, with_best
from cosda.report.pairs import measured, without_drop
from cosda.report.published import label_of, published
from cosda.report.significance import with_comparisons
from cosda.report.tables import Cell, Row, Section

BOTH = (ACCURACY, DROP)
Classes = Mapping[int, float]  # place of a class -> its number; a class without images has none


def class_grids(sections: Sequence[Section]) -> list[Grid]:
    """A table for each pair of source and target that is measured class by class."""
    return [
        _grid(section)
        for section in sections
        if section.headline == "per-class" and len(section.domains) == 2 and any(row.counted for row in section.rows)
    ]


def _grid(section: Section) -> Grid:
    names = next(_names(row.counted[0]) for row in section.rows if row.counted)
    headings = (*(Heading(name, BOTH) for name in names), Heading("average", BOTH, average=True))
    found = {row.name: [_by_class(run) for run in row.counted] for row in section.rows}
    rows = tuple(_line(section, row, found[row.name], names) for row in section.rows)
    grid = replace(empty_grid(section, "classes", headings, rows), title=f"{section.benchmark}: class by class")
    outside = without_drop(section.rows)
    behind = {
        row.name: [
            {
                (run.seed, place): number
                for run, classes in zip(row.counted, found[row.name], strict=True)
                for place, number in classes[j].items()
                if (row.name, BOTH[j].name) not in outside
            }
            for j in range(2)
        ]
        for row in section.rows
    }
    return with_comparisons(with_best(grid, outside), len(names), behind, "seed and class")


def _names(run: Run) -> list[str]:
    """The classes, or their numbers where the settings do not name them."""
    counted = len(next(run.of("accuracy"))["images"])
    return [str(name) for name in run.config.get("classes") or range(counted)]


def _line(section: Section, row: Row, found: list[tuple[Classes, Classes]], names: list[str]) -> Line:
    printed = published(section.benchmark, section.domains, label_of(row.runs[0]))
    entries: list[tuple[Entry, ...]] = []
    for place, name in enumerate(names):
        of_class = printed.classes.get(name)
        cells = [_cell([numbers[j] for numbers in found], place) for j in range(2)]
        papers = (of_class.accuracy, of_class.drop) if of_class else (None, None)
        entries.append(tuple(Entry(c, row.counted, paper) for c, paper in zip(cells, papers, strict=True)))
    averages = [Cell(tuple(n[j] for n in measured(row).values()), wording.unfinished(row)) for j in range(2)]
    papers = (printed.accuracy, printed.drop)
    entries.append(tuple(Entry(c, row.counted, paper) for c, paper in zip(averages, papers, strict=True)))
    return Line(row.name, wording.seeds(row), tuple(entries), problems=tuple(map(wording.problem, row.problems)))


def _cell(by_seed: list[Classes], place: int) -> Cell:
    if not by_seed:
        return Cell((), wording.NOT_FINISHED)
    values = tuple(classes[place] for classes in by_seed if place in classes)
    return Cell(values, "" if values else "no images of this class are measured")


def _by_class(run: Run) -> tuple[Classes, Classes]:
    """Accuracy on the target and drop on the source, each by class."""
    source, target = run.domains
    before, after = _shares(run, 0, source), _shares(run, 1, source)
    return _shares(run, 1, target), {place: before[place] - after[place] for place in before if place in after}


def _shares(run: Run, stage: int, domain: str) -> dict[int, float]:
    record: Json = list(run.of("accuracy", stage=stage, epoch=None, domain=domain, split="test"))[-1]
    counts = zip(record["correct"], record["images"], strict=True)
    return {place: correct / images for place, (correct, images) in enumerate(counts) if images}
