"""Accuracy matrices as heat maps."""

from __future__ import annotations

import math

from cosda.report.figures.base import Figure, FigureKind, Panel
from cosda.report.figures.style import Palette, Plot, framed_map, label, map_size, stage_names
from cosda.report.model.groups import Group, Section
from cosda.report.model.numbers import percent


def matrices(section: Section, colours: Palette) -> Figure | None:
    """A heat map for each finished method."""
    if not section.finished:
        return None
    return Figure(
        "Accuracy matrices",
        "Accuracy in percent on each domain (columns) after each stage (rows), mean over seeds. "
        "Frames mark a domain's own stage: below them is forgetting, above them forward transfer.",
        tuple(Panel(group.name, heat_map(section, group), group=group.name) for group in section.finished),
        size=map_size(len(section.domains)),
    )


def heat_map(section: Section, group: Group) -> Plot:
    """The accuracy matrix of one method, mean over seeds; the diagonal (a domain's own stage) is framed."""
    matrix = group.mean_matrix()
    domains, stages = [label(name, 14) for name in section.domains], stage_names(section.domains)
    lowest = min(value for other in section.finished for row in other.mean_matrix() for value in row)
    return framed_map(
        matrix,
        texts=[[percent(value) for value in row] for row in matrix],
        hovers=[
            [f"{label(stage)}<br>{domain}: {percent(v)}" for domain, v in zip(domains, row, strict=True)]
            for stage, row in zip(stages, matrix, strict=True)
        ],
        columns=domains,
        rows=[label(stage, 20) for stage in stages],
        frames=[(i, i) for i in range(len(matrix))],
        # One scale for all methods of a section, so that equal colours are equal numbers.
        lowest=math.floor(lowest * 10) * 10,
    )


MATRICES = FigureKind("accuracy matrices as heat maps", matrices)
