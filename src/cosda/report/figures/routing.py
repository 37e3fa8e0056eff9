"""Which experts of a domain bank the images of each domain went to, as heat maps."""

from __future__ import annotations

from collections.abc import Sequence

from cosda import metrics
from cosda.records.run import RoutedImages, Run
from cosda.report.figures.base import Figure, FigureKind, Panel
from cosda.report.figures.style import ROOMY, Palette, Plot, framed_map, label, map_size
from cosda.report.model.groups import Section
from cosda.report.model.numbers import percent


def routing(section: Section, colours: Palette) -> Figure | None:
    """A heat map for each domain bank."""
    if not section.banks:
        return None
    return Figure(
        "Routing",
        "Percent of the images of each domain (rows) that went to each expert (columns) after the last stage, mean "
        "over seeds. The bank was not told their domain. Frames mark a domain's own expert.",
        tuple(Panel(group.name, routing_map(group.counted), group=group.name) for group in section.banks),
        size=map_size(len(section.domains)),
    )


def routing_map(runs: Sequence[Run]) -> Plot:
    """The share of each domain's images (rows) that went to each expert (columns), mean over the runs."""
    found = {domain: [run.routing()[domain] for run in runs] for domain in runs[0].routing()}
    experts = list(dict.fromkeys(name for of_runs in found.values() for sent in of_runs for name in sent.experts))
    matrix = [
        [metrics.mean([sent.experts.get(name, 0.0) for sent in of_runs]) for name in experts]
        for of_runs in found.values()
    ]
    columns, rows = [label(name, 14) for name in experts], [label(name, 20) for name in found]
    return framed_map(
        matrix,
        texts=[[percent(share) if len(experts) <= ROOMY else f"{100 * share:.0f}" for share in row] for row in matrix],
        hovers=[
            [
                f"{percent(share)} % of {name}<br>to the expert of {expert}{rest}"
                for expert, share in zip(columns, row, strict=True)
            ]
            for name, row, rest in zip(rows, matrix, map(_rest, found.values()), strict=True)
        ],
        columns=columns,
        rows=rows,
        frames=[(i, experts.index(sent.own)) for i, (sent, *_) in enumerate(found.values()) if sent.own],
    )


def _rest(found: Sequence[RoutedImages]) -> str:
    """What the columns do not show of a domain."""
    mixed = metrics.mean([sent.mixed for sent in found])
    unknown = metrics.mean([sent.unknown for sent in found])
    return f"<br>(mixed: {percent(mixed)} %, unknown: {percent(unknown)} %)"


ROUTING = FigureKind("which experts of a bank the images of each domain went to, as heat maps", routing)
