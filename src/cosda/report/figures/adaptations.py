"""One adaptation without labels: what the model said of the new images before (grey) and after (blue)."""

from __future__ import annotations

from collections.abc import Sequence

from cosda.records.verdict import Said, Verdict
from cosda.report.figures.style import COLOURS, FAINT, Plot, label, rounded, ticks
from cosda.report.tables.adaptations import CHECK, Number, estimator_names, most_moved

SHORT = 3  # letters of a name that stands upright below its bar
BEFORE, AFTER = FAINT, COLOURS[0]
LEGEND = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}


def estimates(verdict: Verdict) -> Plot:
    """The estimated accuracy with its interval, what each estimator says by itself, and what labelled images say."""
    names = ["estimate", *estimator_names(verdict)]
    sides: list[list[Number]] = []
    for said in (verdict.before, verdict.after):
        found = said.estimate if said is not None else None
        sides.append([found, *(None if found is None else found.estimators.get(name) for name in names[1:])])
    if verdict.check is not None:
        names.append(CHECK)
        sides[0].append(verdict.check.before)
        sides[1].append(verdict.check.after)
    shown = [i for i in range(len(names)) if any(side[i] is not None for side in sides)]
    traces = [
        _dots(title, colour, [side[i] for i in shown], shift)
        for (title, colour, shift), side in zip((("before", BEFORE, -0.13), ("after", AFTER, 0.13)), sides, strict=True)
        if any(one is not None for one in side)
    ]
    layout = {
        "height": 90 + 44 * len(shown),
        "margin": {"l": 8, "r": 14, "t": 34, "b": 8},
        "legend": LEGEND,
        "showlegend": True,
        "xaxis": {"ticksuffix": "%", "range": [0, 101], "automargin": True},
        "yaxis": {**ticks([label(names[i], 18) for i in shown]), "range": [len(shown) - 0.5, -0.5], "showgrid": False},
    }
    return {"data": traces, "layout": layout}


def _dots(title: str, colour: str, values: Sequence[Number], shift: float) -> Plot:
    found = [(i, value) for i, value in enumerate(values) if value is not None]
    centres = [value if isinstance(value, float) else value.accuracy for _, value in found]
    spans = [None if isinstance(value, float) else (value.low, value.high) for _, value in found]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": title,
        "x": [rounded(100 * centre) for centre in centres],
        "y": [i + shift for i, _ in found],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [span and rounded(100 * (span[1] - c)) for c, span in zip(centres, spans, strict=True)],
            "arrayminus": [span and rounded(100 * (c - span[0])) for c, span in zip(centres, spans, strict=True)],
            "color": colour,
            "thickness": 2.5,
            "width": 0,  # a cap would also stand where there is no interval
        },
        "marker": {"color": colour, "size": [9 if isinstance(value, float) else 12 for _, value in found]},
        "cliponaxis": False,  # a dot at 100 % is a whole one
        "hoverinfo": "text",
        "hovertext": [
            f"{title}: {value:.1%}" if isinstance(value, float) else f"{title}: {value.text}" for _, value in found
        ],
    }


def predicted_classes(verdict: Verdict) -> Plot:
    """Images of each predicted class before and after, as bars."""
    before, after = verdict.before, verdict.after
    if before is None or after is None:
        return {"data": [], "layout": {}}
    shown = most_moved(before, after)
    names = [label(verdict.classes[i], 16) for i in shown]
    layout = {
        "height": 300,
        "width": 90 + 22 * len(shown),
        "barmode": "group",
        "bargap": 0.25,
        "margin": {"l": 46, "r": 12, "t": 34, "b": 8},
        "legend": LEGEND,
        # Names end below their bars: where they begin there, those of the last bars do not fit and are not drawn.
        "xaxis": {**ticks(names), "tickangle": -45 if max(map(len, names), default=0) > SHORT else 0},
        "yaxis": {"title": {"text": "images", "standoff": 6}},
    }
    bars = [
        {
            "type": "bar",
            "name": title,
            "x": list(range(len(shown))),
            "y": [said.classes[i] for i in shown],
            "marker": {"color": colour},
            "hoverinfo": "text",
            "hovertext": [f"{name}<br>{said.classes[i]} {title}" for name, i in zip(names, shown, strict=True)],
        }
        for title, colour, said in (("before", BEFORE, before), ("after", AFTER, after))
    ]
    return {"data": bars, "layout": layout}


def confidences(verdict: Verdict) -> Plot:
    """How surely the classes are given before and after: the share of images by the probability of their class."""
    sides = (("before", BEFORE, verdict.before), ("after", AFTER, verdict.after))
    lines = [_steps(title, colour, said) for title, colour, said in sides if said and sum(said.confidences)]
    layout = {
        "height": 300,
        "margin": {"l": 46, "r": 12, "t": 34, "b": 44},
        "legend": LEGEND,
        "showlegend": True,
        "xaxis": {"title": {"text": "probability of the class", "standoff": 6}, "range": [0, 100], "ticksuffix": "%"},
        "yaxis": {"title": {"text": "images", "standoff": 6}, "ticksuffix": "%", "rangemode": "tozero"},
    }
    return {"data": lines, "layout": layout}


def _steps(title: str, colour: str, said: Said) -> Plot:
    bins = len(said.confidences)
    shares = [100 * count / sum(said.confidences) for count in said.confidences]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": title,
        "x": [rounded(100 * i / bins) for i in range(bins + 1)],
        "y": [rounded(share) for share in (*shares, shares[-1])],
        "line": {"color": colour, "width": 2.5, "shape": "hv"},
        "fill": "tozeroy",
        "hoverinfo": "y+name",
    }
