"""A figure as in a paper: a title, a caption and one or more panels, each with a plot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cosda.records.run import Run
from cosda.report.figures.style import Palette, Plot
from cosda.report.model.groups import DAMAGED, Group, Section


@dataclass(frozen=True)
class Panel:
    """One plot or a list of sentences; without either, the reason why."""

    title: str
    plot: Plot | None = None
    lines: tuple[str, ...] = ()
    reason: str = ""
    group: str = ""  # the method that it shows alone

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to see, not even a reason."""
        return self.plot is not None and not self.plot["data"]


@dataclass(frozen=True)
class Figure:
    """Panels of one kind."""

    title: str
    caption: str
    panels: tuple[Panel, ...]
    size: str = "medium"  # "wide": one panel in a row, "medium": two, "small": three
    legend: bool = False  # whether the colours of the methods must be explained
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FigureKind:
    """An entry of the registry of figures."""

    title: str  # what it shows, in a few words
    make: Callable[[Section, Palette], Figure | None]  # None where there is nothing to draw


def panel_of(title: str, make: Callable[[Run], Plot], run: Run, group: str = "") -> Panel:
    """The plot of a single run; damaged records are a reason and no crash."""
    try:
        return Panel(title, make(run), group=group)
    except DAMAGED as error:
        return Panel(title, reason=f"damaged records ({type(error).__name__}: {error})", group=group)


def shown_run(group: Group) -> Run:
    """The run that is shown where there is room for one: the lowest seed, finished if possible."""
    return (group.counted or group.runs)[0]
