"""How good each selection rule would have been: its regret against the oracle, and whether its score ranks epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cosda.records.run import Run
from cosda.records.selection import judge, rules
from cosda.report.model.groups import DAMAGED, Section
from cosda.report.model.table import Cell, Column, Row, Table, with_best
from cosda.report.tables.base import TableKind
from cosda.report.tables.joined import joined_table

COLUMNS = (
    Column("regret", "regret", larger_is_better=False),
    Column("rank correlation", "correlation", percent=False),
    Column("stages", "stages", larger_is_better=None, percent=False, decimals=0),
)
NOTE = (
    "Regret: accuracy of the best epoch minus that of the epoch which the rule chooses, in percentage points. "
    "Rank correlation: Spearman's, of the rule's score and the true accuracy over the epochs. Mean ± standard "
    "deviation over all stages of two epochs or more of the finished runs, whatever rule they were run with; the "
    "correlation without stages in which score or accuracy never changed."
)


@dataclass
class Found:
    """What is known of one rule, a value for each stage."""

    regrets: list[float] = field(default_factory=list)
    correlations: list[float] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)


def rule_tables(sections: Sequence[Section]) -> list[Table]:
    """A table for each benchmark whose runs recorded scores or accuracies after their epochs."""
    places: dict[tuple[str, str, str], list[Section]] = {}
    for section in sections:
        places.setdefault((section.benchmark, section.protocol, section.headline), []).append(section)
    tables = [_table(found) for found in places.values()]
    return [table for table in tables if any(row.name not in ("last", "oracle") for row in table.rows)]


def _table(sections: list[Section]) -> Table:
    found = {rule: Found() for rule in rules()}
    for run in (run for section in sections for group in section.groups for run in group.runs if run.done is not None):
        try:
            _collect(run, found)
        except DAMAGED:  # its row says so
            continue
    rows = [_row(rule, of_rule) for rule, of_rule in found.items() if of_rule.regrets]
    table = joined_table(sections, f"{sections[0].benchmark}: selection rules", COLUMNS, rows)
    table = replace(table, select="", row_title="rule", notes=(NOTE,))
    return with_best(table, outside={("oracle", "regret")})


def _collect(run: Run, found: dict[str, Found]) -> None:
    for stage in range(1, len(run.domains)):
        judged = judge(run, stage)
        if len({record["epoch"] for record in run.of("loss", stage=stage)}) < 2:
            continue  # of a single epoch every rule chooses the same
        for judgement in judged:
            of_rule = found[judgement.rule]
            of_rule.runs[run.path.name] = run
            if judgement.regret is not None:
                of_rule.regrets.append(judgement.regret)
            if judgement.correlation is not None:
                of_rule.correlations.append(judgement.correlation)


def _row(rule: str, found: Found) -> Row:
    runs = tuple(found.runs.values())
    without = "it has no score" if rule in ("last", "oracle") else "scores or accuracies never changed"
    return Row(
        rule,
        (
            Cell(tuple(found.regrets), runs=runs),
            Cell(tuple(found.correlations), "" if found.correlations else without, runs),
            Cell((float(len(found.regrets)),), runs=runs),
        ),
    )


RULES = TableKind("regret of each selection rule, and rank correlation of its score with accuracy", rule_tables)
