"""Draw the figures of the documents from runs: `cosda demo --seeds 3 --out demo && python -m tools.figures demo/runs`.

Writes docs/figures/demo.csv, the accuracy of every run after every stage on every domain, and from it

    stages.svg       accuracy on all domains over the stages: the best method of the paper, and the bank
    trade-off.svg    accuracy on the targets against forgetting, for all rows of the demonstration

Without runs the figures are drawn again from the stored numbers. They are light or dark as the reader's system is.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cosda import metrics
from cosda.files import write_atomically
from cosda.methods import METHODS
from cosda.records.run import find_runs
from cosda.report.figures.style import COLOURS, Palette
from cosda.report.figures.trade_off import Point, plot
from cosda.report.model.groups import Section, group_runs
from cosda.report.model.names import BASELINES

FOLDER = Path(__file__).parents[1] / "docs" / "figures"
COLUMNS = ("method", "seed", "stage", "domain", "accuracy")
Matrices = dict[str, list[list[list[float]]]]  # method -> seed -> accuracy[stage][domain], fractions

# Colours that stand for those of the page: they are replaced by names that the system's scheme fills in.
INK, FAINT = "#010203", "#040506"
SCHEME = """<style>
  svg { --ink: #1a202c; --faint: #a0aec0; font-family: system-ui, sans-serif }
  @media (prefers-color-scheme: dark) { svg { --ink: #e6edf3; --faint: #6e7681 } }
</style>
"""
STYLE = {
    "axes.edgecolor": FAINT,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 11,
    "grid.color": FAINT,
    "grid.linewidth": 0.4,
    "svg.fonttype": "none",
    "svg.hashsalt": "cosda",
    "text.color": INK,
    "xtick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.color": FAINT,
    "ytick.labelcolor": INK,
}


def table_of(section: Section) -> str:
    """The accuracies of all finished runs of a section as CSV."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(COLUMNS)
    for group in section.finished:
        for run, matrix in zip(group.counted, group.matrices, strict=True):
            for stage, accuracies in enumerate(matrix):
                for domain, accuracy in zip(section.domains, accuracies, strict=True):
                    out.writerow((group.name, run.seed, stage, domain, f"{accuracy:.6f}"))
    return text.getvalue()


def read(table: str) -> tuple[list[str], Matrices]:
    """The domains of such a table in their order, and the accuracies."""
    rows = list(csv.DictReader(io.StringIO(table)))
    domains = list(dict.fromkeys(row["domain"] for row in rows))
    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    for row in rows:
        seeds = found.setdefault(row["method"], {})
        seeds.setdefault(row["seed"], {}).setdefault(int(row["stage"]), []).append(float(row["accuracy"]))
    return domains, {
        name: [[matrix[stage] for stage in sorted(matrix)] for matrix in seeds.values()]
        for name, seeds in found.items()
    }


def average(matrices: Sequence[list[list[float]]]) -> float:
    """The mean over seeds of the average over all domains after the last stage."""
    return metrics.mean([metrics.average_accuracy(matrix) for matrix in matrices])


def best_of_the_paper(found: Matrices) -> str:
    """The method with the best average among those that the paper has, as they are there."""
    return max(
        (name for name in found if name in METHODS and name not in BASELINES), key=lambda name: average(found[name])
    )


def bank_of(found: Matrices) -> str:
    """The row with the domain bank."""
    return next(name for name in found if "carry bank" in name)


WORDS = {"source": "no adaptation", "aad": "AaD", "cosda": "CoSDA"}
RULES = {"bank": "the bank", "interpolate": "slow carry"}


def called(name: str) -> str:
    """What a row is called in a figure: `aad (carry bank)` is `AaD with the bank`."""
    method, _, rule = name.rstrip(")").partition(" (carry ")
    title = "+".join(WORDS.get(part, part.upper()) for part in method.split("+"))
    return f"{title} with {RULES.get(rule.split()[0], rule)}" if rule else title


def stages(domains: Sequence[str], found: Matrices) -> Figure:
    """Two panels, the best method of the paper and the bank: a line for each domain, over the stages."""
    figure, panels = pyplot.subplots(1, 2, figsize=(8.4, 3.6), sharey=True, layout="constrained")
    for panel, name in zip(panels, (best_of_the_paper(found), bank_of(found)), strict=True):
        _over_stages(panel, domains, found[name])
        title = f"{called(name)}: {100 * average(found[name]):.1f} %\naverage over all domains at the end"
        panel.set_title(title, fontsize=11)
    panels[0].set_ylabel("accuracy, %")
    return figure


def _over_stages(panel: Axes, domains: Sequence[str], matrices: Sequence[list[list[float]]]) -> None:
    """Thin and broken until a domain's own stage, strong from then on: what is strong should not fall."""
    steps, ends = range(len(domains)), []
    for number, (name, colour) in enumerate(zip(domains, COLOURS, strict=False)):
        line = [100 * metrics.mean([matrix[stage][number] for matrix in matrices]) for stage in steps]
        panel.plot(steps[: number + 1], line[: number + 1], color=colour, linewidth=1.2, linestyle=(0, (3, 2)))
        panel.plot(steps[number:], line[number:], color=colour, linewidth=2.6)
        panel.plot(number, line[number], "o", color=colour, markersize=7)
        ends.append((line[-1], name, colour))
    for (_, name, colour), height in zip(sorted(ends), apart([end for end, *_ in sorted(ends)], 4.5), strict=True):
        panel.annotate(name, (steps[-1], height), (8, 0), textcoords="offset points", color=colour, va="center")
    panel.set_xticks(steps, ["source\nmodel", *(f"after\n{name}" for name in domains[1:])])
    panel.set_xlim(-0.2, len(domains) - 0.88)  # names stand beside it: no line of the grid runs through them


def apart(heights: Sequence[float], least: float) -> list[float]:
    """Rising heights, moved so that two are at least so far from each other, and as little as that takes."""
    places = list(heights)
    for _ in range(100):
        for i in range(1, len(places)):
            missing = least - (places[i] - places[i - 1])
            if missing > 0:
                places[i - 1] -= missing / 2
                places[i] += missing / 2
    return places


def trade_off(domains: Sequence[str], found: Matrices) -> Figure:
    """The figure of the report: a point for each method, faint points for its seeds, and the Pareto front."""
    figure, panel = pyplot.subplots(figsize=(8.4, 4.0), layout="constrained")
    points = [
        Point(
            called(name),
            tuple(metrics.source_drop(matrix) for matrix in matrices),
            tuple(metrics.adaptation(matrix) or 0.0 for matrix in matrices),
            tuple("" for _ in matrices),
        )
        for name, matrices in found.items()
    ]
    made = plot(points, Palette(tuple(point.name for point in points)))
    for trace in made["data"]:
        x, y, marker = trace["x"], trace["y"], trace.get("marker", {})
        if trace["mode"] == "lines":
            panel.step(x, y, where="post", color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1)
        else:
            panel.plot(
                *(x, y, "o"), color=marker["color"], markersize=0.75 * marker["size"], alpha=marker.get("opacity", 1)
            )
        if "text" in trace["mode"]:
            (up, along), text = trace["textposition"].split(), trace["text"][0].strip()
            at = {"left": -9, "right": 9}[along], {"top": 7, "middle": 0, "bottom": -7}[up]
            side = {"ha": {"left": "right", "right": "left"}[along], "va": "center"}
            panel.annotate(text, (x[0], y[0]), at, textcoords="offset points", **side)
    panel.set_xlabel(made["layout"]["xaxis"]["title"]["text"])
    panel.set_ylabel(made["layout"]["yaxis"]["title"]["text"])
    return figure


FIGURES = {"stages": stages, "trade-off": trade_off}


def as_svg(figure: Figure) -> str:
    """The figure as text, in the colours of the reader's system."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    text = out.getvalue().replace(INK, "var(--ink)").replace(FAINT, "var(--faint)")
    text = re.sub(r"<\?xml.*?(?=<svg)", "", text, flags=re.DOTALL)
    text = re.sub(r" *<metadata>.*?</metadata>\n", "", text, flags=re.DOTALL)
    text = re.sub(r"'DejaVu Sans'.*?sans-serif", "system-ui, sans-serif", text)
    return text.replace("<defs>", f"{SCHEME} <defs>", 1)


def draw(table: str) -> dict[str, str]:
    """All figures of such a table, by name."""
    with matplotlib.rc_context(STYLE):
        return {name: as_svg(make(*read(table))) for name, make in FIGURES.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="run folders of `cosda demo --seeds 3`")
    asked = parser.parse_args()
    stored = FOLDER / "demo.csv"
    if asked.runs:
        [section] = group_runs(find_runs(asked.runs)).sections
        write_atomically(stored, table_of(section))
    for name, text in draw(stored.read_text(encoding="utf-8")).items():
        write_atomically(FOLDER / f"{name}.svg", text)
