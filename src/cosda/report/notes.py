"""What stands below a table: tests, the paper's numbers, empty cells; each note follows from what is in the grid."""

from __future__ import annotations

from dataclasses import replace

from cosda.records.run import Run
from cosda.report.grids import FEWEST, UNSURE, Comparison, Grid
from cosda.report.published import NETWORKS
from cosda.report.settings import flatten, show
from cosda.report.wording import EMPTY, GROUPS, WHOLE


def with_notes(grid: Grid) -> Grid:
    """A grid with the notes that follow from what is in it."""
    notes = [*grid.notes, *_on_comparisons(grid), *_on_the_paper(grid)]
    if grid.kind not in GROUPS:  # a section has its own list of them
        notes += _on_empty_cells(grid)
    return replace(grid, notes=tuple(notes))


def _on_comparisons(grid: Grid) -> list[str]:
    """What the tests say of the rows, a sentence for each number that was tested, and what the test is."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for comparison in grid.comparisons:
        groups.setdefault((comparison.column, comparison.measure), []).append(comparison)
    notes = [_verdicts(column, measure, found) for (column, measure), found in groups.items()]
    if any(comparison.p is not None for comparison in grid.comparisons):
        notes.append(
            f"p: Wilcoxon's signed-rank test over values paired by {grid.comparisons[0].paired_by}, with Holm's "
            f"correction over the rows. † marks p ≥ {UNSURE}: the difference may be chance."
        )
    return notes


def _verdicts(column: str, measure: str, found: list[Comparison]) -> str:
    name = measure if column in (measure, "average") else column
    if all(comparison.p is None for comparison in found):
        most = max(comparison.values for comparison in found)
        few = f"{most} value{'s' * (most != 1)} paired by {found[0].paired_by}"
        return f"{name}: differences are not tested: at most {few}, and {FEWEST} are needed."
    verdicts = [
        f"{c.row}: " + (f"{c.values} values are too few" if c.p is None else f"{show_p(c.p)} ({c.values} values)")
        for c in found
    ]
    return f"{name}, against {found[0].reference}: {'; '.join(verdicts)}."


def show_p(p: float) -> str:
    """A p-value with three decimals."""
    return "p < 0.001" if p < 0.0005 else f"p = {p:.3f}"


def _on_the_paper(grid: Grid) -> list[str]:
    if not grid.has_published:
        return []
    network = NETWORKS.get(grid.benchmark, "another network")
    ours = sorted({_network(run) for row in grid.rows for cell in row.entries for entry in cell for run in entry.runs})
    here = f"; here it is {' and '.join(ours)}" if ours else ""
    return [
        f"paper: the number in the paper, in brackets ours minus it. The paper trains {network} whole{here}; "
        "with another network or shorter training the two are not comparable digit by digit."
    ]


def _network(run: Run) -> str:
    settings = flatten(run.config["settings"])
    frozen = ", frozen" if settings.get("network.freeze_encoder") else ""
    return f"{show(settings.get('network.encoder', 'a network that is not named'))}{frozen}"


def _on_empty_cells(grid: Grid) -> list[str]:
    empty: dict[str, dict[str, list[str]]] = {}
    for row in grid.rows:
        for heading, cell in zip(grid.columns, row.entries, strict=True):
            reasons = {entry.cell.reason for entry in cell if entry.cell.mean is None} - {WHOLE}
            for reason in reasons:
                empty.setdefault(reason, {}).setdefault(row.name, []).append(heading.title)
    return [
        f"{EMPTY} {reason}: " + "; ".join(f"{row} ({', '.join(titles)})" for row, titles in rows.items()) + "."
        for reason, rows in sorted(empty.items())
    ]
