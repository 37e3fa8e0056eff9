"""What happens within the stages of a run, epoch by epoch: accuracy, losses, label-free scores, seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cosda.records.run import Run
from cosda.report.figures.base import Figure, FigureKind, Panel, panel_of, shown_run
from cosda.report.figures.style import COLOURS, FAINT, SOURCE_COLOUR, TARGET_COLOUR, Palette, Plot, label, rounded
from cosda.report.model.groups import Section

Step = tuple[int, int]  # stage and epoch
CHOSEN_COLOUR = "#e0823d"


def epochs(section: Section, colours: Palette) -> Figure | None:
    """Accuracy and losses of one run of each method."""
    panels: list[Panel] = []
    without: list[str] = []
    for group in section.groups:
        found = [
            panel_of(f"{group.name}: accuracy", accuracy_curves, shown_run(group), group.name),
            panel_of(f"{group.name}: losses", loss_curves, shown_run(group), group.name),
        ]
        shown = [panel for panel in found if not panel.is_empty]
        panels += shown
        without += [] if shown else [group.name]
    return Figure(
        "Epoch by epoch",
        "Accuracy on the target of each stage, and on the source where it is recorded, with a ring at the epoch that "
        "the selection rule chose; beside it the mean of every loss term. All stages in a row; the lowest seed of "
        "each method, the other seeds have their own pages.",
        tuple(panels),
        notes=(f"No epochs recorded: {', '.join(without)}.",) if without and panels else (),
    )


@dataclass(frozen=True)
class Timeline:
    """The epochs of all stages one after the other."""

    domains: Sequence[str]
    steps: tuple[Step, ...]

    def draw(self, values: Mapping[Step, float | None]) -> tuple[list[float], list[float | None]]:
        """Places and heights of a line; None breaks it where a stage begins."""
        x: list[float] = []
        y: list[float | None] = []
        for place, step in enumerate(self.steps, start=1):
            if place > 1 and self.steps[place - 2][0] != step[0]:
                x.append(place - 0.5)
                y.append(None)
            x.append(place)
            y.append(rounded(values.get(step)))
        return x, y

    def layout(self, unit: str = "") -> dict[str, Any]:
        """A dotted line where a stage begins, with its name above."""
        starts = [i for i, step in enumerate(self.steps) if i == 0 or self.steps[i - 1][0] != step[0]]
        dotted = {
            "type": "line",
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "line": {"color": FAINT, "width": 1, "dash": "dot"},
        }
        name = {"y": 1, "yref": "paper", "xanchor": "left", "yanchor": "bottom", "showarrow": False}
        return {
            "height": 290,
            "margin": {"l": 46, "r": 12, "t": 26, "b": 8},
            "showlegend": True,
            "legend": {"orientation": "h", "y": -0.22, "yanchor": "top"},
            # Whole epochs between ticks, about eight of them.
            "xaxis": {"title": {"text": "epoch", "standoff": 6}, "dtick": max(1, -(-len(self.steps) // 8))},
            "yaxis": {"ticksuffix": unit},
            "shapes": [{**dotted, "x0": start + 0.5, "x1": start + 0.5} for start in starts],
            "annotations": [
                {**name, "x": start + 0.5, "text": label(self.domains[self.steps[start][0]], 14), "font": {"size": 11}}
                for start in starts
            ],
        }


def timeline(run: Run) -> Timeline:
    """The epochs that a run has finished."""
    return Timeline(run.domains, tuple((record["stage"], record["epoch"]) for record in run.of("loss")))


def chosen_epochs(run: Run) -> dict[int, int]:
    """The epoch that the selection rule chose in each finished stage."""
    return {record["stage"]: record["epoch"] for record in run.of("chosen") if record["epoch"] is not None}


def accuracy_curves(run: Run) -> Plot:
    """Accuracy on the target of each stage, on the source where it is recorded, and the chosen epochs."""
    time, source = timeline(run), run.domains[0]
    targets: dict[Step, float | None] = {}
    sources: dict[Step, float | None] = {}
    for record in run.of("accuracy", split="test"):
        step = (record["stage"], record["epoch"])
        if record["epoch"] is not None and record["domain"] == run.domains[record["stage"]]:
            targets[step] = 100 * run.accuracy(record)
        elif record["epoch"] is not None and record["domain"] == source:
            sources[step] = 100 * run.accuracy(record)
    traces = [
        _line(time, name, values, colour)
        for name, values, colour in (
            ("target of the stage", targets, TARGET_COLOUR),
            (f"{source} (source)", sources, SOURCE_COLOUR),
        )
        if values
    ]
    if targets:
        chosen = {step: targets.get(step) for step in chosen_epochs(run).items()}
        traces.append(_marks(time, chosen))
    return {"data": traces, "layout": time.layout(unit="%")}


def loss_curves(run: Run) -> Plot:
    """Every loss term of a run."""
    return _each({(record["stage"], record["epoch"]): record["terms"] for record in run.of("loss")}, timeline(run))


def score_curves(run: Run) -> Plot:
    """Every label-free score of a run, each stretched from its lowest (0) to its highest value (1) of the run."""
    scores = {(record["stage"], record["epoch"]): record["scores"] for record in run.of("validation")}
    lowest: dict[str, float] = {}
    highest: dict[str, float] = {}
    for found in scores.values():
        for name, value in found.items():
            lowest[name], highest[name] = min(value, lowest.get(name, value)), max(value, highest.get(name, value))
    stretched = {
        step: {name: (value - lowest[name]) / (highest[name] - lowest[name] or 1.0) for name, value in found.items()}
        for step, found in scores.items()
    }
    return _each(stretched, timeline(run))


def absolute_scores(run: Run, incoming: Mapping[str, float]) -> dict[str, Plot]:
    """A plot of each label-free score of a run of one stage as it is; epoch 0 is the ``incoming`` model."""
    time, chosen = timeline(run), chosen_epochs(run)
    found: dict[str, dict[Step, float | None]] = {}
    for record in run.of("validation"):
        for name, value in record["scores"].items():
            found.setdefault(name, {})[record["stage"], record["epoch"]] = value
    plots = {}
    for name, values in found.items():
        traces = [_line(time, name, values, COLOURS[0])]
        if name in incoming:
            before = rounded(incoming[name])
            traces[0] |= {"x": [0, *traces[0]["x"]], "y": [before, *traces[0]["y"]]}
            traces.append(_points("incoming model", [(0, before)], {"size": 9, "color": FAINT}))
        traces.append(_marks(time, {step: values.get(step) for step in chosen.items()}))
        layout = {**time.layout(), "height": 220, "showlegend": False, "shapes": [], "annotations": []}
        layout["margin"] = {"l": 46, "r": 12, "t": 12, "b": 44}
        plots[name] = {"data": traces, "layout": layout}
    return plots


def time_curve(run: Run) -> Plot:
    """Seconds of every epoch; of an epoch that was repeated after a crash, the last time."""
    time = timeline(run)
    seconds = {(facts["stage"], facts["epoch"]): facts["seconds"] for facts in run.timing}
    traces = [_line(time, "seconds", seconds, COLOURS[0])] if seconds else []
    layout = {**time.layout(), "showlegend": False, "yaxis": {"rangemode": "tozero"}}
    layout["margin"] = {**layout["margin"], "b": 44}  # nothing below makes room for the name of the axis
    return {"data": traces, "layout": layout}


def _each(values: Mapping[Step, Mapping[str, float]], time: Timeline) -> Plot:
    """A line for each name."""
    names = dict.fromkeys(name for found in values.values() for name in found)
    traces = [
        _line(time, name, {step: found.get(name) for step, found in values.items()}, COLOURS[i % len(COLOURS)])
        for i, name in enumerate(names)
    ]
    return {"data": traces, "layout": time.layout()}


def _line(time: Timeline, name: str, values: Mapping[Step, float | None], colour: str) -> Plot:
    x, y = time.draw(values)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label(name),
        "x": x,
        "y": y,
        "line": {"color": colour, "width": 2},
        "marker": {"size": 4},
        "hoverinfo": "y+name",
    }


def _marks(time: Timeline, values: Mapping[Step, float | None]) -> Plot:
    places = [(time.steps.index(step) + 1, rounded(value)) for step, value in values.items() if step in time.steps]
    ring = {"size": 14, "symbol": "circle-open", "color": CHOSEN_COLOUR, "line": {"width": 3}}
    return _points("chosen epoch", places, ring)


def _points(name: str, places: Sequence[tuple[int, float | None]], marker: Plot) -> Plot:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [x for x, _ in places],
        "y": [y for _, y in places],
        "marker": marker,
        "hoverinfo": "y+name",
    }


EPOCHS = FigureKind("accuracy and losses of each epoch", epochs)
