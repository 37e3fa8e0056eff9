"""Accuracy of each class of the last target before and after adaptation, as bars."""

from __future__ import annotations

from collections.abc import Sequence

from cosda import metrics
from cosda.records.run import Run
from cosda.report.figures.base import Figure, FigureKind, Panel
from cosda.report.figures.style import FAINT, Palette, Plot, label, rounded, ticks
from cosda.report.model.groups import Section

MOST_BARS = 40  # classes in a figure of bars; of more, those that change most are shown


def classes(section: Section, colours: Palette) -> Figure | None:
    """Bars for the classes of the last target; None where the records hold none."""
    if len(section.domains) < 2 or not section.finished:
        return None
    plot, left_out = class_bars(section, colours)
    if plot is None:
        return None
    return Figure(
        f"Classes of {section.domains[-1]} before and after",
        "Accuracy of each class of the last target: of the source model (grey) and after the last stage (colours), "
        "mean over seeds, the hardest class first."
        + (f" {left_out} more classes change less and are not shown." if left_out else ""),
        (Panel("", plot),),
        size="wide",
        legend=True,
    )


def class_names(section: Section) -> list[str]:
    """The classes of a section."""
    return [str(name) for name in section.groups[0].runs[0].config["classes"]]


def class_bars(section: Section, colours: Palette) -> tuple[Plot | None, int]:
    """Accuracy of each class of the last target before and after, the hardest class first; how many are left out."""
    names, first, last = class_names(section), 0, len(section.domains) - 1
    before = _mean(section, [run for group in section.finished for run in group.counted], first, len(names))
    found = {group.name: _mean(section, group.counted, last, len(names)) for group in section.finished}
    after = {name: values for name, values in found.items() if values}
    if not before or not after:
        return None, 0
    # A class without test images has no accuracy.
    known = [i for i, value in enumerate(before) if value is not None]

    def change(i: int) -> float:
        return max(abs((values[i] or 0.0) - (before[i] or 0.0)) for values in after.values())

    shown = sorted(known, key=lambda i: (-change(i), i))[:MOST_BARS]
    shown.sort(key=lambda i: (before[i] or 0.0, i))
    bars = [_bars("before", [before[i] for i in shown], FAINT)]
    for name, values in after.items():
        bars.append({**_bars(name, [values[i] for i in shown], colours.colour(name)), "meta": name})
    layout = {
        "height": 340,
        "width": 90 + 8 * len(shown) * (len(bars) + 1),
        "barmode": "group",
        "bargap": 0.25,
        "showlegend": False,
        "margin": {"l": 40, "r": 12, "t": 10, "b": 8},
        "xaxis": ticks([label(names[i], 16) for i in shown]),
        "yaxis": {"ticksuffix": "%", "range": [0, 100]},
    }
    return {"data": bars, "layout": layout}, len(known) - len(shown)


def _mean(section: Section, runs: Sequence[Run], stage: int, size: int) -> list[float | None]:
    """Mean accuracy over the runs on the last target, class by class; None where a class has no test images.

    Runs whose records do not fit the classes are passed over; without any left there is no number at all.
    """
    records = [
        record
        for run in runs
        for record in run.of("accuracy", stage=stage, epoch=None, domain=section.domains[-1], split="test")
        if len(record["correct"]) == len(record["images"]) == size
    ]
    found = [[c / n if n else None for c, n in zip(r["correct"], r["images"], strict=True)] for r in records]
    by_class = ([value for value in values if value is not None] for values in zip(*found, strict=True))
    return [metrics.mean(values) if values else None for values in by_class]


def _bars(name: str, values: Sequence[float | None], colour: str) -> Plot:
    return {
        "type": "bar",
        "name": label(name),
        "x": list(range(len(values))),
        "y": [rounded(100 * value) if value is not None else None for value in values],
        "marker": {"color": colour},
        "hoverinfo": "y+name",
    }


CLASSES = FigureKind("accuracy of each class of the last target before and after", classes)
