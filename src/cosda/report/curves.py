"""Figures of what happens within the stages, epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cosda.records import Run
from cosda.report.plots import FAINT, PALETTE, Figure, label, rounded


def loss_curves(run: Run) -> Figure:
    """Every loss term of a run over its epochs, all stages one after the other; None breaks the lines."""
    records = list(run.of("loss"))
    terms = list(dict.fromkeys(term for record in records for term in record["terms"]))
    traces = []
    for number, term in enumerate(terms):
        x: list[float] = []
        y: list[float | None] = []
        for epoch, record in enumerate(records, start=1):
            if epoch > 1 and records[epoch - 2]["stage"] != record["stage"]:
                x.append(epoch - 0.5)
                y.append(None)
            x.append(epoch)
            y.append(rounded(record["terms"].get(term)))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": label(term),
                "x": x,
                "y": y,
                "line": {"color": PALETTE[number % len(PALETTE)], "width": 2},
                "marker": {"size": 4},
                "hoverinfo": "text",
                "hovertext": [f"{label(term)}: {value:.4g}" if value is not None else "" for value in y],
            }
        )
    layout = {"height": 290, "margin": {"l": 46, "r": 12, "t": 26, "b": 8}, "showlegend": True}
    layout["legend"] = {"orientation": "h", "y": -0.22, "yanchor": "top"}
    layout["xaxis"] = {"title": {"text": "epoch", "standoff": 6}, "dtick": _step(len(records))}
    return {"data": traces, "layout": {**layout, **_stage_marks(records, run.domains)}}


def _stage_marks(records: Sequence[dict[str, Any]], domains: Sequence[str]) -> dict[str, Any]:
    """A dotted line where a stage begins, with its name above."""
    starts = [i for i, r in enumerate(records) if i == 0 or records[i - 1]["stage"] != r["stage"]]
    dotted = {
        "type": "line",
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": FAINT, "width": 1, "dash": "dot"},
    }
    name = {
        "y": 1,
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 11},
    }
    return {
        "shapes": [{**dotted, "x0": start + 0.5, "x1": start + 0.5} for start in starts],
        "annotations": [
            {**name, "x": start + 0.5, "text": label(domains[records[start]["stage"]], 14)} for start in starts
        ],
    }


def _step(epochs: int) -> int:
    """Whole epochs between ticks, about eight of them."""
    return max(1, -(-epochs // 8))
