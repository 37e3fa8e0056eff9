"""How numbers, rules and reasons read; shared by the writers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cosda.records.run import Run
from cosda.report.columns import Column
from cosda.report.grids import ACCURACY, Entry, Grid, Measure
from cosda.report.tables import Problem, Row, Section
from cosda.validators import VALIDATORS

EMPTY = "–"

GROUPS = {
    "summary": "Summary",
    "final": "Accuracy on each domain after the last stage",
    "adapted": "Accuracy on each target right after adapting to it",
}
TITLES = {
    **GROUPS,
    "matrix": "Accuracy matrices: every domain after every stage",
    "classes": "Class by class",
    "ablations": "Ablations",
    "rules": "Selection rules",
    "pairs": "All pairs",
    "chains": "All chains",
}

NOT_FINISHED = "no finished run"
NO_SHARED_SEED = "no seed has both"
WHOLE = "this is the whole method"
PAIRS = (
    "Accuracy on the target and drop on the source, in percentage points. An average is taken over the pairs of each "
    "seed that has them all, then over these seeds."
)
OTHER = "Last column: the same weights with the other BatchNorm statistics (merged over domains, or the target's own)."
RULES = (
    "Regret: accuracy of the best epoch minus that of the epoch which the rule chooses, in percentage points. "
    "Rank correlation: Spearman's, of the rule's score and the true accuracy over the epochs. Mean ± standard "
    "deviation over all stages of two epochs or more of the finished runs, whatever rule they were run with; the "
    "correlation without stages in which score or accuracy never changed."
)

HOW_TO_READ = (
    "Accuracies are in percent; drops, transfers and forgetting in percentage points. "
    "A ± B is the mean and the sample standard deviation over the seeds; a single seed has no ±. "
    "Bold is the best mean of its column; † a difference that may be chance."
)


def percent(value: float) -> str:
    """A fraction as percent with two decimals, and never as -0.00."""
    return show_value(value, ACCURACY)


def show_value(value: float, measure: Measure) -> str:
    """A number as its measure asks for."""
    shown = round(value * (100 if measure.percent else 1), measure.decimals) + 0.0
    return f"{shown:+.{measure.decimals}f}" if measure.signed else f"{shown:.{measure.decimals}f}"


def show_entry(entry: Entry, measure: Measure) -> str:
    """Ours: mean ± spread, or a dash."""
    if entry.cell.mean is None:
        return EMPTY
    spread = entry.cell.spread
    more = f" ± {show_value(spread, replace(measure, signed=False))}" if spread is not None else ""
    return show_value(entry.cell.mean, measure) + more


def show_published(entry: Entry, measure: Measure) -> str:
    """The paper's number and in brackets ours minus it; nothing where it has none."""
    if entry.published is None:
        return ""
    shown = show_value(entry.published, measure)
    if entry.difference is None:
        return shown
    return f"{shown} ({show_value(entry.difference, replace(measure, signed=True))})"


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


def problem(problem: Problem) -> str:
    """A run that gave no numbers."""
    return f"seed {problem.run.seed} ({problem.run.path.name}): {problem.reason}"


def unfinished(row: Row) -> str:
    """Why a row has no numbers, if it has none."""
    return "" if row.counted else NOT_FINISHED


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
    return "share of images classified correctly (top-1)"


def facts(section: Section) -> list[str]:
    """What the numbers of a section are, one fact a line."""
    about = protocol(section.protocol)
    return [
        f"Accuracy: {headline(section)}.",
        f"Protocol: {section.protocol}: {about}" if about else f"Protocol: {section.protocol}",
        f"Selection rule: {section.select}: {selection(section.select)}",
    ]


def section_notes(section: Section) -> list[str]:
    """Why cells of a section are empty, and which seeds are missing."""
    notes = [f"{column.title}: {column.undefined}." for column in undefined(section)]
    return notes + [f"{row}, {problem(found)}." for row, found in problems(section)]


def caption(grid: Grid) -> str:
    """The title of a table that stands alone."""
    chain = f" ({' → '.join(grid.domains)})" if grid.domains else ""
    rule = f" (rule: {grid.select})" if grid.select else ""
    return f"{grid.title}{chain}{rule}"


def selection(rule: str) -> str:
    """What a selection rule means for the numbers."""
    if rule == "last":
        return "each stage hands on the model of its last epoch; no label has a say."
    if rule == "oracle":
        return (
            "each stage hands on the epoch that is best on the target's test labels: "
            "an upper bound that nobody can reach in practice, not comparable with other rules."
        )
    meaning = f" ({VALIDATORS[rule].title})" if rule in VALIDATORS else ""
    return f"each stage hands on the epoch that the label-free validator '{rule}' prefers{meaning}; no label has a say."


def protocol(name: str) -> str:
    """What a protocol means for the numbers."""
    return {
        "inductive": "adapted on the target's training images, measured on its test images.",
        "transductive": "adapted and measured on the same images of the target.",
    }.get(name, "")


def pairs(sections: Sequence[Section]) -> tuple[list[str], tuple[str, ...]]:
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


def chains(domains: Sequence[tuple[str, ...]]) -> str:
    """What a table of all chains is taken over."""
    names = "; ".join(" → ".join(chain) for chain in domains)
    return f"Means over {len(domains)} chains of each seed that has them all, then over these seeds: {names}."


def ablations(whole: str, domains: Sequence[tuple[str, ...]]) -> str:
    """What a table of ablations is taken over."""
    pairs = len(domains[0]) == 2
    scope = f"the average of {len(domains)} pairs" if len(domains) > 1 else " → ".join(domains[0])
    words = "on the target" if pairs else "on each target right after adapting to it"
    return (
        f"Over {scope}: accuracy {words}, drop on the source. Change: against {whole}, over the seeds that both have."
    )
