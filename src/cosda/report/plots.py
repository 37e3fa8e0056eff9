"""Plotly figures as plain dictionaries: what is drawn is decided here, colours of light and dark in the page.

Names from data never become axis categories (two equal names would be one) nor templates (``%{x}`` would be
filled in): axes are numbers with tick texts, hover texts are complete, and all of them pass through `label`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cosda import metrics
from cosda.report.embedding import Projection
from cosda.report.tables import Row, Section
from cosda.report.wording import percent

Figure = dict[str, Any]

# Paul Tol's palettes "bright" and "vibrant" and a few more: apart for the colour-blind, visible on light and on dark.
COLOURS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#ccaa22",
    "#66ccee",
    "#aa3377",
    "#999999",
    "#ee7733",
    "#009988",
    "#8866cc",
    "#9c6b3f",
    "#e78ac3",
    "#8fbf3f",
)
DASHES = ("solid", "dash", "dot", "dashdot")
SOURCE_COLOUR, TARGET_COLOUR = "#d73027", "#4575b4"  # of the paper's t-SNE figure
TARGET_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star")
FAINT = "#8a8a8a"
SEQUENTIAL = [[0.0, "#f5ecdc"], [0.5, "#b3d0cd"], [0.78, "#5a9aab"], [0.8, "#3c7f97"], [1.0, "#1b4f72"]]


def label(name: str, longest: int = 28) -> str:
    """A name from data for plotly, whose texts are a small HTML: mark-up is escaped, long names are cut."""
    name = " ".join(name.split())
    return html.escape(name if len(name) <= longest else name[: longest - 1] + "…", quote=False)


@dataclass(frozen=True)
class Palette:
    """The colour of each method, the same in all tables and figures of a report."""

    names: tuple[str, ...]

    def colour(self, name: str) -> str:
        """The colour of a method; they begin again where there are more methods than colours."""
        return COLOURS[self.names.index(name) % len(COLOURS)]

    def dash(self, name: str) -> str:
        """The dash of a method's lines: tells them apart when the colours begin again."""
        return DASHES[self.names.index(name) // len(COLOURS) % len(DASHES)]


def palette(sections: Sequence[Section]) -> Palette:
    """Colours for all methods of all sections."""
    return Palette(tuple(dict.fromkeys(row.name for section in sections for row in section.rows)))


def stage_names(domains: Sequence[str]) -> list[str]:
    """Stage 0 is the source model; the others are called after their target."""
    return ["source model", *(f"after {name}" for name in domains[1:])]


def heat_map(section: Section, row: Row) -> Figure:
    """The accuracy matrix of one row, mean over seeds; the diagonal (a domain's own stage) is framed."""
    matrix = row.mean_matrix()
    size = len(matrix)
    domains, stages = [label(name, 14) for name in section.domains], stage_names(section.domains)
    finished = (other for other in section.rows if other.counted)
    lowest = min(value for other in finished for line in other.mean_matrix() for value in line)
    frame = {"type": "rect", "line": {"color": "#e0823d", "width": 2}}
    return {
        "data": [
            {
                "type": "heatmap",
                "z": [[rounded(100 * value) for value in line] for line in matrix],
                "text": [[percent(value) for value in line] for line in matrix],
                "texttemplate": "%{text}",
                "hoverinfo": "text",
                "hovertext": [
                    [f"{label(stage)}<br>{domain}: {percent(v)}" for domain, v in zip(domains, line, strict=True)]
                    for stage, line in zip(stages, matrix, strict=True)
                ],
                # One scale for all rows of a section, so that equal colours are equal numbers.
                "zmin": math.floor(lowest * 10) * 10,
                "zmax": 100,
                "colorscale": SEQUENTIAL,
                "showscale": False,
                "xgap": 2,
                "ygap": 2,
            }
        ],
        "layout": {
            "height": 74 + 40 * size,
            "margin": {"l": 8, "r": 8, "t": 34, "b": 8},
            "xaxis": {**ticks(domains), "side": "top", "showgrid": False, "fixedrange": True},
            "yaxis": {
                **ticks([label(stage, 20) for stage in stages]),
                "autorange": "reversed",
                "showgrid": False,
                "fixedrange": True,
            },
            "shapes": [{**frame, "x0": i - 0.48, "x1": i + 0.48, "y0": i - 0.48, "y1": i + 0.48} for i in range(size)],
        },
    }


def stage_lines(section: Section, domain: int, colours: Palette) -> Figure:
    """Accuracy on one domain over the stages, a line for each row, with the spread over seeds."""
    stages = stage_names(section.domains)
    traces = []
    for row in (row for row in section.rows if row.counted):
        values = [[matrix[stage][domain] for matrix in row.matrices] for stage in range(len(stages))]
        means, spreads = [metrics.mean(v) for v in values], [metrics.spread(v) for v in values]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": label(row.name),
                "meta": row.name,
                "x": list(range(len(stages))),
                "y": [rounded(100 * mean) for mean in means],
                "error_y": {"array": [rounded(100 * s) for s in spreads], "thickness": 1, "width": 3},
                "line": {"color": colours.colour(row.name), "dash": colours.dash(row.name), "width": 2},
                "marker": {"size": 6},
                "hoverinfo": "text",
                "hovertext": [
                    f"{label(row.name)}<br>{label(stage)}: {percent(m)} ± {percent(s)}"
                    for stage, m, s in zip(stages, means, spreads, strict=True)
                ],
            }
        )
    own = {"type": "line", "x0": domain, "x1": domain, "y0": 0, "y1": 1, "yref": "paper"}
    return {
        "data": traces,
        "layout": {
            "height": 270,
            "showlegend": False,
            "margin": {"l": 40, "r": 12, "t": 10, "b": 8},
            "xaxis": {**ticks([label(name, 12) for name in section.domains]), "ticklabeloverflow": "allow"},
            "yaxis": {"ticksuffix": "%"},
            "shapes": [{**own, "line": {"color": FAINT, "width": 1, "dash": "dot"}}],
        },
    }


def features(projection: Projection, domains: Sequence[str]) -> Figure:
    """t-SNE of features: the source red and the targets blue as in the paper, a symbol for each target."""
    traces = []
    # The source is drawn last: it has the fewest points wherever there are several targets.
    for domain in sorted(set(projection.domains), key=lambda domain: (domain == 0, domain)):
        chosen = [i for i, other in enumerate(projection.domains) if other == domain]
        symbol = "circle" if domain == 0 else TARGET_SYMBOLS[(domain - 1) % len(TARGET_SYMBOLS)]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": label(domains[domain]) + (" (source)" if domain == 0 else ""),
                "legendrank": domain + 1,
                "x": [projection.points[i][0] for i in chosen],
                "y": [projection.points[i][1] for i in chosen],
                "marker": {
                    "color": SOURCE_COLOUR if domain == 0 else TARGET_COLOUR,
                    "symbol": symbol,
                    "size": 5,
                    "opacity": 0.75,
                },
                "hoverinfo": "name",
            }
        )
    hidden = {"showticklabels": False, "showgrid": False, "zeroline": False, "showline": False, "ticks": ""}
    return {
        "data": traces,
        "layout": {
            "height": 320,
            "margin": {"l": 4, "r": 4, "t": 4, "b": 4},
            "showlegend": True,
            "legend": {"orientation": "h", "y": -0.02, "yanchor": "top"},
            "xaxis": hidden,
            "yaxis": hidden,
        },
    }


def ticks(texts: Sequence[str]) -> dict[str, Any]:
    """An axis of names: numbers that are shown as texts."""
    numbers = list(range(len(texts)))
    return {"tickvals": numbers, "ticktext": list(texts), "automargin": True, "zeroline": False, "ticks": ""}


def rounded(value: float | None) -> float | None:
    """Six digits after the point are more than a screen shows; JSON has no NaN, so it becomes a gap."""
    return round(value, 6) if value is not None and math.isfinite(value) else None
