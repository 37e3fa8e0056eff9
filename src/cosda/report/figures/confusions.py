"""Which classes are confused: heat maps, or with very many classes a list."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cosda.records.arrays import read_arrays
from cosda.records.run import Run
from cosda.report.figures.base import Figure, FigureKind, Panel
from cosda.report.figures.classes import class_names
from cosda.report.figures.style import Palette, Plot, label, ticks
from cosda.report.model.groups import NOT_FINISHED, Group, Section

LARGEST_MAP = 65  # classes in a heat map; of more, the most frequent confusions are listed
LONGEST_LIST = 12
# One colour, more or less of it, so that a single confusion is faint and a frequent one strong on light and on dark;
# and nearly nothing for zero.
SHADES = [
    [0.0, "rgba(128,128,128,0.06)"],
    [0.005, "rgba(128,128,128,0.06)"],
    [0.005, "rgba(45,128,160,0.25)"],
    [0.3, "rgba(45,128,160,0.6)"],
    [1.0, "rgba(45,128,160,1)"],
]

Counts = np.ndarray  # (classes, classes): true by predicted


def confusions(section: Section, colours: Palette) -> Figure | None:
    """A panel for each finished method, of the last target after the last stage."""
    names = class_names(section)
    found = [(group, total_confusions(group, len(section.domains) - 1, len(names))) for group in section.finished]
    stored = [(group, counts) for group, counts in found if not isinstance(counts, str)]
    missing = [f"{group.name}: {reason}." for group, reason in found if isinstance(reason, str)]
    return Figure(
        f"Confusions on {section.domains[-1]}",
        "Which classes are confused on the last target after the last stage, all seeds together: each row is a true "
        "class, its shade the share that is given to the class of the column. The runs' pages have the other domains.",
        tuple(confusion_panel(group.name, counts, names, group.name) for group, counts in stored),
        # A report of runs that store no confusions at all does not need a list of them.
        notes=tuple(missing) if stored or any("damaged" in note for note in missing) else (),
    )


def read_confusions(run: Run, stage: int) -> list[Counts | None] | str:
    """The confusion matrix of each domain of the chain after a stage, or the reason why there is none."""
    if not any(run.of("confusion", stage=stage)):
        return "no confusions were stored"
    path, size = run.path / "confusion" / f"stage-{stage}.npz", len(run.config["classes"])
    try:
        stored = read_arrays(path, [f"d{i}" for i in range(len(run.domains))])
        found = [stored.get(f"d{i}") for i in range(len(run.domains))]
        for counts in found:
            if counts is not None and (counts.shape != (size, size) or counts.dtype.kind not in "iu"):
                raise ValueError(f"expected counts of {size} by {size} classes")
    except ValueError as error:
        return f"{path.name} is damaged: {error}" if path.exists() else f"{path.name} is missing"
    return found


def total_confusions(group: Group, domain: int, size: int) -> Counts | str:
    """The confusions of all counted seeds together on a domain, or the reason why there are none."""
    reason, total = NOT_FINISHED, None
    for run in group.counted:
        found = read_confusions(run, len(run.domains) - 1)
        if isinstance(found, str):
            reason = found
        elif (counts := found[domain]) is not None and len(counts) == size:
            total = counts.astype(np.int64) if total is None else total + counts
    return total if total is not None else reason


def confusion_panel(title: str, counts: Counts, names: Sequence[str], group: str = "") -> Panel:
    """A heat map, or with very many classes the most frequent confusions in words."""
    if len(names) <= LARGEST_MAP:
        return Panel(title, confusion_map(counts, names), group=group)
    return Panel(title, lines=most_confused(counts, names) or ("no confusion at all",), group=group)


def confusion_map(counts: Counts, names: Sequence[str]) -> Plot:
    """Share of each true class (rows) that is given to each class (columns), in percent. The page adds hover texts."""
    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axis = {**ticks([label(name, 16) for name in names]), "showgrid": False, "fixedrange": True}
    axis["tickfont"] = {"size": 11 if len(names) <= 12 else 8}
    upright = 0 if max(map(len, names)) <= 2 else 90
    size = max(300, min(620, 130 + 14 * len(names)))
    return {
        "data": [
            {
                "type": "heatmap",
                "z": [[round(float(share)) for share in row] for row in shares],
                "zmin": 0,
                "zmax": 100,
                "colorscale": SHADES,
                "showscale": False,
                "hoverinfo": "text",
            }
        ],
        "layout": {
            "height": size,
            "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
            "xaxis": {**axis, "tickangle": upright, "title": {"text": "predicted", "standoff": 4}},
            "yaxis": {**axis, "autorange": "reversed", "title": {"text": "true", "standoff": 4}},
        },
    }


def most_confused(counts: Counts, names: Sequence[str]) -> tuple[str, ...]:
    """The most frequent confusions in words, the most frequent first."""
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:LONGEST_LIST]
    pairs = [(int(i) // len(names), int(i) % len(names)) for i in order]
    return tuple(
        f"{names[true]} taken for {names[taken]}: {wrong[true, taken]} of {counts[true].sum()}"
        for true, taken in pairs
        if wrong[true, taken]
    )


CONFUSIONS = FigureKind("which classes of the last target are confused", confusions)
