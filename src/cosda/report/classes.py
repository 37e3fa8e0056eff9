"""What happens to the single classes: bars before and after, and who is taken for whom."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence

import numpy as np

from cosda import metrics
from cosda.records.run import Run
from cosda.report.plots import FAINT, Figure, Palette, label, rounded, ticks
from cosda.report.tables import Row, Section

MOST_BARS = 40  # classes in a figure of bars; of more, those that change most are shown
LARGEST_MAP = 65  # classes in a confusion matrix; of more, the most frequent confusions are listed
LONGEST_LIST = 12
# One colour, more or less of it, so that a single confusion is faint and a frequent one strong on light and on dark;
# and nearly nothing for zero.
CONFUSED = [
    [0.0, "rgba(128,128,128,0.06)"],
    [0.005, "rgba(128,128,128,0.06)"],
    [0.005, "rgba(45,128,160,0.25)"],
    [0.3, "rgba(45,128,160,0.6)"],
    [1.0, "rgba(45,128,160,1)"],
]

Counts = np.ndarray  # (classes, classes): true by predicted


def class_names(section: Section) -> list[str]:
    """The classes of a section; none where its runs do not name them."""
    for row in section.rows:
        for run in row.counted:
            return [str(name) for name in run.config.get("classes") or ()]
    return []


def class_bars(section: Section, colours: Palette) -> tuple[Figure | None, int]:
    """Accuracy of each class of the last target before and after, the hardest class first; how many are left out."""
    names, first, last = class_names(section), 0, len(section.domains) - 1
    finished = [row for row in section.rows if row.counted]
    before = _mean(section, [run for row in finished for run in row.counted], first, len(names))
    found = {row.name: _mean(section, row.counted, last, len(names)) for row in finished}
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


def read_confusions(run: Run, stage: int) -> list[Counts | None] | str:
    """The confusion matrix of each domain of the chain after a stage, or the reason why there is none."""
    if not any(run.of("confusion", stage=stage)):
        return "no confusions were stored"
    path, size = run.path / "confusion" / f"stage-{stage}.npz", len(run.config.get("classes") or ())
    try:
        with np.load(path) as stored:  # never unpickles
            found = [stored[name] if (name := f"d{i}") in stored else None for i in range(len(run.domains))]
        for counts in found:
            if counts is not None and (counts.shape != (size, size) or counts.dtype.kind not in "iu"):
                raise ValueError(f"expected counts of {size} by {size} classes")
    except (KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile) as error:
        return f"{path.name} is damaged: {error}" if path.exists() else f"{path.name} is missing"
    return found


def total_confusions(row: Row, domain: int, size: int) -> Counts | str:
    """The confusions of all counted seeds together on a domain, or the reason why there are none."""
    reason, total = "no finished run", None
    for run in row.counted:
        found = read_confusions(run, len(run.domains) - 1)
        if isinstance(found, str):
            reason = found
        elif (counts := found[domain]) is not None and len(counts) == size:
            total = counts.astype(np.int64) if total is None else total + counts
    return total if total is not None else reason


def confusion_map(counts: Counts, names: Sequence[str]) -> Figure:
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
                "z": [[round(float(share)) for share in line] for line in shares],
                "zmin": 0,
                "zmax": 100,
                "colorscale": CONFUSED,
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
    columns = ([value for value in column if value is not None] for column in zip(*found, strict=True))
    return [metrics.mean(values) if values else None for values in columns]


def _bars(name: str, values: Sequence[float | None], colour: str) -> Figure:
    return {
        "type": "bar",
        "name": label(name),
        "x": list(range(len(values))),
        "y": [rounded(100 * value) if value is not None else None for value in values],
        "marker": {"color": colour},
        "hoverinfo": "y+name",
    }
