"""How plots look: colours, names, axes. Plots are plain dictionaries for plotly.

What is drawn is decided here and in the files beside; the colours of light and dark in the page. Names from data never
become axis categories (two equal names would be one) nor templates (``%{x}`` would be filled in): axes are numbers with
tick texts, hover texts are complete, and all of them pass through `label`.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cosda.report.model.groups import Section

Plot = dict[str, Any]  # data and layout, as plotly takes them

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
FAINT, FRAME = "#8a8a8a", "#e0823d"
ROOMY = 8  # columns of a heat map that fit into a panel, with two decimals
SEQUENTIAL = [[0.0, "#f5ecdc"], [0.5, "#b3d0cd"], [0.78, "#5a9aab"], [0.8, "#3c7f97"], [1.0, "#1b4f72"]]


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
    return Palette(tuple(dict.fromkeys(group.name for section in sections for group in section.groups)))


def label(name: str, longest: int = 28) -> str:
    """A name from data for plotly, whose texts are a small HTML: mark-up is escaped, long names are cut."""
    name = " ".join(name.split())
    return html.escape(name if len(name) <= longest else name[: longest - 1] + "…", quote=False)


def stage_names(domains: Sequence[str]) -> list[str]:
    """Stage 0 is the source model; the others are named after their target."""
    return ["source model", *(f"after {name}" for name in domains[1:])]


def ticks(texts: Sequence[str]) -> dict[str, Any]:
    """An axis of names: numbers that are shown as texts."""
    numbers = list(range(len(texts)))
    return {"tickvals": numbers, "ticktext": list(texts), "automargin": True, "zeroline": False, "ticks": ""}


def rounded(value: float | None) -> float | None:
    """Six digits after the point are more than a screen shows; JSON has no NaN, so it becomes a gap."""
    return round(value, 6) if value is not None and math.isfinite(value) else None


def map_size(columns: int) -> str:
    """The size of a figure of heat maps with so many columns."""
    if columns <= 2:
        return "small"
    return "medium" if columns <= ROOMY else "wide"


def framed_map(
    matrix: Sequence[Sequence[float]],
    *,
    texts: Sequence[Sequence[str]],
    hovers: Sequence[Sequence[str]],
    columns: Sequence[str],
    rows: Sequence[str],
    frames: Sequence[tuple[int, int]],
    lowest: float = 0,
) -> Plot:
    """A heat map of fractions, shown in percent with a text in each cell.

    Args:
        matrix: the fractions, row by row.
        texts: what stands in the cells.
        hovers: what a pointer shows.
        columns: their names, as `label` makes them; so are those of the ``rows``.
        rows: their names.
        frames: row and column of the cells that are marked.
        lowest: the percentage that has the faintest colour.
    """
    frame = {"type": "rect", "line": {"color": FRAME, "width": 2}}
    axis = {"showgrid": False, "fixedrange": True}
    # Many columns are scrolled rather than squeezed.
    width = {"width": 140 + 40 * len(columns)} if len(columns) > ROOMY else {}
    return {
        "data": [
            {
                "type": "heatmap",
                "z": [[rounded(100 * value) for value in row] for row in matrix],
                "text": texts,
                "texttemplate": "%{text}",
                "hoverinfo": "text",
                "hovertext": hovers,
                "zmin": lowest,
                "zmax": 100,
                "colorscale": SEQUENTIAL,
                "showscale": False,
                "xgap": 2,
                "ygap": 2,
            }
        ],
        "layout": {
            "height": 74 + 40 * len(matrix),
            **width,
            "margin": {"l": 8, "r": 8, "t": 34, "b": 8},
            "xaxis": {**ticks(columns), "side": "top", **axis},
            "yaxis": {**ticks(rows), "autorange": "reversed", **axis},
            "shapes": [{**frame, "x0": x - 0.48, "x1": x + 0.48, "y0": y - 0.48, "y1": y + 0.48} for y, x in frames],
        },
    }
