"""Accuracy on each domain over the stages of a chain."""

from __future__ import annotations

from cosda import metrics
from cosda.report.figures.base import Figure, FigureKind, Panel
from cosda.report.figures.style import FAINT, Palette, Plot, label, rounded, stage_names, ticks
from cosda.report.model.groups import Section
from cosda.report.model.numbers import percent


def stages(section: Section, colours: Palette) -> Figure | None:
    """A panel for each domain, a line for each method."""
    if len(section.domains) < 3 or not section.finished:
        return None  # with a single target the lines would have two points, which the matrix shows better
    return Figure(
        "Accuracy on each domain over the stages",
        "Mean over seeds; bars are their standard deviation. Stages are named after the domain learned in them, "
        "the first one is the source model; a dotted line marks the domain's own stage.",
        tuple(Panel(name, stage_lines(section, i, colours)) for i, name in enumerate(section.domains)),
        legend=True,
    )


def stage_lines(section: Section, domain: int, colours: Palette) -> Plot:
    """Accuracy on one domain over the stages, a line for each method, with the spread over seeds."""
    names = stage_names(section.domains)
    traces = []
    for group in section.finished:
        values = [[matrix[stage][domain] for matrix in group.matrices] for stage in range(len(names))]
        means, spreads = [metrics.mean(v) for v in values], [metrics.spread(v) for v in values]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": label(group.name),
                "meta": group.name,
                "x": list(range(len(names))),
                "y": [rounded(100 * mean) for mean in means],
                "error_y": {"array": [rounded(100 * s) for s in spreads], "thickness": 1, "width": 3},
                "line": {"color": colours.colour(group.name), "dash": colours.dash(group.name), "width": 2},
                "marker": {"size": 6},
                "hoverinfo": "text",
                "hovertext": [
                    f"{label(group.name)}<br>{label(stage)}: {percent(m)} ± {percent(s)}"
                    for stage, m, s in zip(names, means, spreads, strict=True)
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


STAGES = FigureKind("accuracy on each domain over the stages", stages)
