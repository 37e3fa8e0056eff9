"""How numbers, rules and reasons read; shared by the writers."""

from __future__ import annotations

from cosda.records import Run
from cosda.report.columns import Column
from cosda.report.tables import Cell, Problem, Row, Section

EMPTY = "–"

GROUPS = {
    "summary": "Summary",
    "final": "Accuracy on each domain after the last stage",
    "adapted": "Accuracy on each target right after adapting to it",
}

HOW_TO_READ = (
    "Accuracies are in percent; drops, transfers and forgetting in percentage points. "
    "A ± B is the mean and the sample standard deviation over the seeds; a single seed has no ±. "
    "Bold is the best mean of its column."
)


def percent(value: float) -> str:
    """A fraction as percent with two decimals, and never as -0.00."""
    return f"{round(value * 100, 2) + 0.0:.2f}"


def show_cell(cell: Cell) -> str:
    """Mean ± spread in percent, or a dash."""
    if cell.mean is None:
        return EMPTY
    return percent(cell.mean) + (f" ± {percent(cell.spread)}" if cell.spread is not None else "")


def is_best(section: Section, row: Row, column: int) -> bool:
    """Whether this row holds the best mean of the column, at the precision shown."""
    mean, best = row.cells[column].mean, section.best(column)
    return mean is not None and best is not None and round(mean, 4) == best


def seeds(row: Row) -> str:
    """How many seeds stand behind a row, and of how many."""
    wanted = len({run.seed for run in row.runs})
    return str(wanted) if len(row.counted) == wanted else f"{len(row.counted)} of {wanted}"


def group(section: Section, name: str) -> list[tuple[int, Column]]:
    """The columns of one table, with their places in a row's cells."""
    return [(i, column) for i, column in enumerate(section.columns) if column.group == name]


def problems(section: Section) -> list[tuple[str, Problem]]:
    """The runs of a section that gave no numbers, each with the name of its row."""
    return [(row.name, problem) for row in section.rows for problem in row.problems]


def state(row: Row, run: Run) -> str:
    """Whether a run is counted, and if not, why."""
    return next((problem.reason for problem in row.problems if problem.run is run), "finished")


def undefined(section: Section) -> list[Column]:
    """Columns that are empty for a reason that lies in the chain and not in a run."""
    finished = [row for row in section.rows if row.counted]
    return [
        column
        for i, column in enumerate(section.columns)
        if finished and all(row.cells[i].mean is None for row in finished)
    ]


def headline(section: Section) -> str:
    """What 'accuracy' stands for in this section."""
    if section.headline == "per-class":
        return "mean of the accuracies of the classes"
    return "share of pictures classified correctly (top-1)"


def selection(rule: str) -> str:
    """What a selection rule means for the numbers."""
    if rule == "last":
        return "each stage hands on the model of its last epoch; no label has a say."
    if rule == "oracle":
        return (
            "each stage hands on the epoch that is best on the target's test labels: "
            "an upper bound that nobody can reach in practice, not comparable with other rules."
        )
    return f"each stage hands on the epoch that the label-free validator '{rule}' prefers; no label has a say."


def protocol(name: str) -> str:
    """What a protocol means for the numbers."""
    return {
        "inductive": "adapted on the target's training pictures, measured on its test pictures.",
        "transductive": "adapted and measured on the same pictures of the target.",
    }.get(name, "")
