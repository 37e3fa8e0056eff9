"""How good each selection rule would have been: its distance from the oracle, and whether its score knows accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cosda.records.run import Run
from cosda.records.selection import judge, rules
from cosda.report import wording
from cosda.report.chapters import empty_grid
from cosda.report.grids import Entry, Grid, Heading, Line, Measure, with_best
from cosda.report.tables import DAMAGED, Cell, Section

REGRET = Measure("regret", "regret", higher_is_better=False)
CORRELATION = Measure("correlation", "rank correlation", percent=False)
STAGES = Measure("stages", "stages", higher_is_better=None, percent=False, decimals=0)


@dataclass
class Record:
    """What is known of one rule, a value for each stage."""

    regrets: list[float] = field(default_factory=list)
    correlations: list[float] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)


def rule_grids(sections: Sequence[Section]) -> list[Grid]:
    """A table for each benchmark whose runs recorded scores or accuracies after their epochs."""
    places: dict[tuple[str, str, str], list[Section]] = {}
    for section in sections:
        places.setdefault((section.benchmark, section.protocol, section.headline), []).append(section)
    grids = [_grid(found) for found in places.values()]
    return [grid for grid in grids if any(line.name not in ("last", "oracle") for line in grid.rows)]


def _grid(sections: list[Section]) -> Grid:
    records = {rule: Record() for rule in rules()}
    for run in (run for section in sections for row in section.rows for run in row.runs if run.done is not None):
        try:
            _collect(run, records)
        except DAMAGED:  # its row says so
            continue
    headings = tuple(Heading(measure.title, (measure,)) for measure in (REGRET, CORRELATION, STAGES))
    rows = tuple(_line(rule, record) for rule, record in records.items() if record.regrets)
    title = f"{sections[0].benchmark}: selection rules"
    grid = replace(empty_grid(sections[0], "rules", headings, rows), title=title, domains=(), fingerprint="", select="")
    return replace(with_best(grid, outside={("oracle", REGRET.name)}), notes=(wording.RULES,))


def _collect(run: Run, records: dict[str, Record]) -> None:
    for stage in range(1, len(run.domains)):
        judged = judge(run, stage)
        if len({record["epoch"] for record in run.of("loss", stage=stage)}) < 2:
            continue  # of a single epoch every rule chooses the same
        for judgement in judged:
            record = records[judgement.rule]
            record.runs[run.path.name] = run
            if judgement.regret is not None:
                record.regrets.append(judgement.regret)
            if judgement.correlation is not None:
                record.correlations.append(judgement.correlation)


def _line(rule: str, record: Record) -> Line:
    runs = tuple(record.runs.values())
    without = "it has no score" if rule in ("last", "oracle") else "scores or accuracies never changed"
    cells = (
        Cell(tuple(record.regrets)),
        Cell(tuple(record.correlations), "" if record.correlations else without),
        Cell((float(len(record.regrets)),)),
    )
    return Line(rule, "", tuple((Entry(cell, runs),) for cell in cells))
