"""Which figures a section shows, in which order and with which words."""

from __future__ import annotations

from dataclasses import dataclass

from cosda.records import Run
from cosda.report import curves, embedding, plots
from cosda.report.tables import DAMAGED, Row, Section


@dataclass(frozen=True)
class Picture:
    """One figure; without one, the reason why."""

    title: str
    figure: plots.Figure | None
    reason: str = ""


@dataclass(frozen=True)
class Album:
    """Figures of one kind."""

    title: str
    caption: str
    pictures: tuple[Picture, ...]
    size: str = "medium"  # "wide": one in a row, "medium": two, "small": three
    legend: bool = False  # whether the colours of the rows must be explained
    notes: tuple[str, ...] = ()


def albums(section: Section) -> list[Album]:
    """All figures of a section; kinds with nothing to draw are left out."""
    finished = [row for row in section.rows if row.counted]
    found: list[Album] = []
    if len(finished) > 1 and len(section.domains) > 1:
        found.append(
            Album(
                "Learning against forgetting",
                "Mean accuracy on the targets right after adapting to each, against the accuracy lost on the "
                "source at the end. Up and left is better. Faint points are seeds, strong ones their mean.",
                (Picture("", plots.trade_off(section)),),
                size="wide",
            )
        )
    if finished and len(section.domains) > 1:
        found.append(
            Album(
                "Accuracy on each domain over the stages",
                "Mean over seeds; bars are their spread. Stages are named after the domain learned in them, "
                "the first one is the source model; a dotted line marks the domain's own stage.",
                tuple(Picture(name, plots.stage_lines(section, i)) for i, name in enumerate(section.domains)),
                legend=True,
            )
        )
    if finished:
        found.append(
            Album(
                "Accuracy matrices",
                "Accuracy in percent on each domain (columns) after each stage (rows), mean over seeds. "
                "Frames mark a domain's own stage: below them is forgetting, above them forward transfer.",
                tuple(Picture(row.name, plots.heat_map(section, row)) for row in finished),
            )
        )
    return found + [album for album in (_losses(section), _features(section)) if album.pictures or album.notes]


def _speaker(row: Row) -> Run:
    """The run that stands for its row where only one can be shown: the lowest seed, finished if possible."""
    return (row.counted or row.runs)[0]


def _losses(section: Section) -> Album:
    pictures, silent = [], []
    for row in section.rows:
        try:
            figure = curves.loss_curves(_speaker(row))
        except DAMAGED as error:
            pictures.append(Picture(row.name, None, f"damaged records ({type(error).__name__}: {error})"))
            continue
        if figure["data"]:
            pictures.append(Picture(row.name, figure))
        else:
            silent.append(row.name)
    return Album(
        "Losses",
        "Mean of every loss term over each epoch, all stages in a row; the lowest seed of each method.",
        tuple(pictures),
        notes=(f"No losses recorded: {', '.join(silent)}.",) if silent and pictures else (),
    )


def _features(section: Section) -> Album:
    """The source model's features once, and those after the last stage of each row."""
    last, size = len(section.domains) - 1, len(section.domains)
    before: dict[str, tuple[embedding.Embedding, list[str]]] = {}
    after: list[tuple[str, embedding.Embedding]] = []
    notes: list[str] = []
    for row in section.rows:
        folder = _speaker(row).path
        start, end = embedding.read(folder, 0, size), embedding.read(folder, last, size)
        if isinstance(start, embedding.Embedding):
            before.setdefault(start.digest, (start, []))[1].append(row.name)
        else:
            notes.append(f"{row.name}, before: {start}.")
        if isinstance(end, embedding.Embedding):
            after.append((row.name, end))
        else:
            notes.append(f"{row.name}, after: {end}.")
    titled = [
        ("Before: source model" + (f" of {', '.join(names)}" if len(before) > 1 else ""), sample)
        for sample, names in before.values()
    ] + [(f"After: {name}", sample) for name, sample in after]
    known: dict[str, embedding.Projection] = {}
    for _, sample in titled:
        if sample.digest not in known:
            known[sample.digest] = embedding.project(sample)
    return Album(
        "Features of source and targets",
        "t-SNE of the network's features before adaptation and after the last stage; the lowest seed of each "
        "method. Clusters that the source (red) and the targets (blue) share are aligned classes; "
        "distances between clusters have no meaning.",
        tuple(Picture(t, plots.features(known[s.digest], section.domains)) for t, s in titled),
        size="small",
        # A report of runs that store no features at all does not need a list of them.
        notes=tuple(notes) if titled or any("damaged" in note for note in notes) else (),
    )
