"""Learning against forgetting: a point for each method, and the front of those that no other one beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cosda import metrics
from cosda.report.figures.base import Figure, FigureKind, Panel
from cosda.report.figures.style import FAINT, Palette, Plot, label, rounded
from cosda.report.model.groups import Section
from cosda.report.model.table import Table

# Roughly what a figure measures on a screen, in pixels, to find room for names.
WIDTH, HEIGHT = 850, 300
LETTER, LINE, DOT = 7, 15, 6
LONGEST_NAME = 22
CAPTION = (
    "Up and left is better. Faint points are seeds, strong ones their mean; no method beats one on the dashed line "
    "(the Pareto front) in one respect without losing in the other."
)
Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Point:
    """One method: source drop and accuracy on the targets of every seed, as fractions."""

    name: str
    drops: tuple[float, ...]
    gains: tuple[float, ...]
    seeds: tuple[str, ...]  # what to call each of them
    published: tuple[float, float] | None = None  # the paper's drop and accuracy

    @property
    def centre(self) -> tuple[float, float]:
        """Mean drop and mean accuracy."""
        return metrics.mean(self.drops), metrics.mean(self.gains)


def trade_off(section: Section, colours: Palette) -> Figure | None:
    """Adaptation against source drop on a chain; None without two methods to compare."""
    points = points_of_chain(section)
    if len(points) < 2:
        return None
    return Figure(
        "Learning against forgetting",
        "Mean accuracy on the targets right after adapting to each, against the accuracy lost on the source at the "
        "end. " + CAPTION,
        (Panel("", plot(points, colours)),),
        size="wide",
        legend=True,
    )


def trade_off_over_pairs(table: Table, colours: Palette) -> Figure | None:
    """The same over all pairs of a benchmark, from the table of pairs; None for other tables."""
    points = points_of_pairs(table) if table.kind == "pairs" else []
    if len(points) < 2:
        return None
    caption = "Accuracy on the target against the accuracy lost on the source, each the mean over all pairs. " + CAPTION
    if any(point.published for point in points):
        caption += " Open diamonds are the paper's numbers."
    title = "Learning against forgetting over all pairs"
    return Figure(title, caption, (Panel("", plot(points, colours)),), "wide", legend=True)


def points_of_chain(section: Section) -> list[Point]:
    """The finished methods of a section."""
    return [
        Point(
            group.name,
            tuple(metrics.source_drop(matrix) for matrix in group.matrices),
            tuple(metrics.adaptation(matrix) or 0.0 for matrix in group.matrices),
            tuple(f"seed {run.seed}" for run in group.counted),
        )
        for group in section.finished
        if len(section.domains) > 1
    ]


def points_of_pairs(table: Table) -> list[Point]:
    """The methods of a table of pairs that have all of them: means over the pairs, one point a seed."""
    accuracy, drop = (table.place("average", measure) for measure in ("accuracy", "drop"))
    points = []
    for row in table.rows:
        gain, loss = row.cells[accuracy], row.cells[drop]
        if gain.values:
            known = gain.published is not None and loss.published is not None
            published = (loss.published or 0.0, gain.published or 0.0) if known else None
            seeds = tuple(f"seed {seed}" for seed in sorted({run.seed for run in gain.runs}))
            points.append(Point(row.name, loss.values, gain.values, seeds, published))
    return points


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Places of the (drop, accuracy) that no other point beats in one without losing in the other, by rising drop."""
    order = sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1]))
    front: list[int] = []
    for i in order:
        if not front or points[i][1] > points[front[-1]][1]:
            front.append(i)
    return front


def plot(points: Sequence[Point], colours: Palette) -> Plot:
    """Accuracy on the targets against source drop: faint points are seeds, strong ones means, a line the front."""
    centres = [point.centre for point in points]
    sides = _sides(points)
    traces = [_front(centres)]
    traces += [_seeds(point, colours.colour(point.name)) for point in points]
    traces += [_published(point, colours.colour(point.name)) for point in points if point.published]
    traces += [_mean(point, colours.colour(point.name), side) for point, side in zip(points, sides, strict=True)]
    return {
        "data": traces,
        "layout": {
            "height": 420,
            "showlegend": False,
            "margin": {"l": 48, "r": 16, "t": 24, "b": 44},
            "xaxis": {"title": {"text": "source drop, points (left is better)"}, "zeroline": True},
            "yaxis": {"title": {"text": "accuracy on the targets, % (up is better)"}},
        },
    }


def _sides(points: Sequence[Point]) -> list[str]:
    """On which side of each point its name meets no other name or point; "" where there is no room at all."""
    drops, gains = zip(*(point.centre for point in points), strict=True)
    across, down = WIDTH / (max(drops) - min(drops) or 1.0), HEIGHT / (max(gains) - min(gains) or 1.0)
    places = [(across * (x - min(drops)), down * (max(gains) - y)) for x, y in zip(drops, gains, strict=True)]
    taken = [(x - DOT, y - DOT, x + DOT, y + DOT) for x, y in places]
    sides = []
    for point, (x, y) in zip(points, places, strict=True):
        length = LETTER * (min(len(point.name), LONGEST_NAME) + 4)
        # Towards the middle first, where there is room.
        order = ("right", "left") if x <= WIDTH / 2 else ("left", "right")
        side = ""
        for name in (f"{up} {along}" for along in order for up in ("middle", "top", "bottom")):
            left = x + DOT if name.endswith("right") else x - DOT - length
            top = y + {"middle": -LINE / 2, "top": -LINE - DOT, "bottom": DOT}[name.split()[0]]
            box = (left, top, left + length, top + LINE)
            if not any(_overlap(box, other) for other in taken):
                taken.append(box)
                side = name
                break
        sides.append(side)
    return sides


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _front(centres: Sequence[tuple[float, float]]) -> Plot:
    """Steps: right of and below the line every point is beaten by one that lies on it."""
    front = [centres[i] for i in pareto_front(centres)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "Pareto front",
        "x": [rounded(100 * drop) for drop, _ in front],
        "y": [rounded(100 * gain) for _, gain in front],
        "line": {"color": FAINT, "width": 2, "dash": "dash", "shape": "hv"},
        "hoverinfo": "name",
    }


def _seeds(point: Point, colour: str) -> Plot:
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": point.name,
        "x": [rounded(100 * v) for v in point.drops],
        "y": [rounded(100 * v) for v in point.gains],
        "marker": {"color": colour, "size": 7, "opacity": 0.4},
        "hoverinfo": "text",
        "hovertext": [f"{label(point.name)}<br>{seed}" for seed in point.seeds],
    }


def _mean(point: Point, colour: str, side: str) -> Plot:
    drop, gain = (100 * value for value in point.centre)
    return {
        "type": "scatter",
        "mode": "markers+text" if side else "markers",
        "meta": point.name,
        "x": [rounded(drop)],
        "y": [rounded(gain)],
        "marker": {"color": colour, "size": 13},
        "text": [f"  {label(point.name, LONGEST_NAME)}  "],
        "textposition": side or "middle right",
        "cliponaxis": False,
        "hoverinfo": "text",
        "hovertext": [f"{label(point.name)}<br>accuracy {gain:.2f}<br>source drop {drop:.2f}"],
    }


def _published(point: Point, colour: str) -> Plot:
    drop, gain = (100 * value for value in point.published or ())
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": point.name,
        "x": [rounded(drop)],
        "y": [rounded(gain)],
        "marker": {"color": colour, "size": 11, "symbol": "diamond-open", "line": {"width": 2}},
        "hoverinfo": "text",
        "hovertext": [f"{label(point.name)} in the paper<br>accuracy {gain:.2f}<br>source drop {drop:.2f}"],
    }


TRADE_OFF = FigureKind("accuracy on the targets against forgetting of the source", trade_off)
