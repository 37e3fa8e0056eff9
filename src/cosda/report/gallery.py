"""Which figures a section shows, in which order and with which words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cosda.records.run import Run
from cosda.report import classes, curves, embedding, plots, tradeoff
from cosda.report.grids import Grid
from cosda.report.tables import DAMAGED, Row, Section

LEGEND_OF_TRADE_OFF = (
    "Up and left is better. Faint points are seeds, strong ones their mean; no method beats one on the dashed line "
    "(the Pareto front) in one respect without losing in the other."
)


@dataclass(frozen=True)
class Image:
    """One figure or a list of sentences; without either, the reason why."""

    title: str
    figure: plots.Figure | None = None
    lines: tuple[str, ...] = ()
    reason: str = ""
    row: str = ""  # the method that it speaks of alone


@dataclass(frozen=True)
class Album:
    """Figures of one kind."""

    title: str
    caption: str
    images: tuple[Image, ...]
    size: str = "medium"  # "wide": one in a row, "medium": two, "small": three
    legend: bool = False  # whether the colours of the rows must be explained
    notes: tuple[str, ...] = ()


def albums(section: Section, colours: plots.Palette) -> list[Album]:
    """All figures of a section; kinds with nothing to draw are left out."""
    found = [
        _trade_off(section, colours),
        _stages(section, colours),
        _matrices(section),
        _epochs(section),
        _classes(section, colours),
        _confusions(section),
        _features(section),
    ]
    return [album for album in found if album and (album.images or album.notes)]


def album_of_pairs(grid: Grid, colours: plots.Palette) -> Album | None:
    """The trade-off over all pairs of a benchmark."""
    points = tradeoff.points_of_pairs(grid) if grid.kind == "pairs" else []
    if len(points) < 2:
        return None
    caption = "Accuracy on the target against the accuracy lost on the source, each the mean over all pairs. "
    caption += LEGEND_OF_TRADE_OFF
    if any(point.published for point in points):
        caption += " Open diamonds are the paper's numbers."
    figure = tradeoff.trade_off(points, colours)
    return Album("Learning against forgetting over all pairs", caption, (Image("", figure),), "wide", legend=True)


def draw(title: str, make: Callable[[Run], plots.Figure], run: Run, row: str = "") -> Image:
    """A figure of a single run; damaged records are a reason and no crash."""
    try:
        return Image(title, make(run), row=row)
    except DAMAGED as error:
        return Image(title, reason=f"damaged records ({type(error).__name__}: {error})", row=row)


def confusion_image(title: str, counts: classes.Counts, names: list[str], row: str = "") -> Image:
    """A heat map, or with very many classes the most frequent confusions in words."""
    if len(names) <= classes.LARGEST_MAP:
        return Image(title, classes.confusion_map(counts, names), row=row)
    return Image(title, lines=classes.most_confused(counts, names) or ("no confusion at all",), row=row)


def has_lines(image: Image) -> bool:
    """Whether there is anything to see, if only the reason why there is nothing."""
    return image.figure is None or bool(image.figure["data"])


def _finished(section: Section) -> list[Row]:
    return [row for row in section.rows if row.counted]


def _speaker(row: Row) -> Run:
    """The run that stands for its row where only one can be shown: the lowest seed, finished if possible."""
    return (row.counted or row.runs)[0]


def _trade_off(section: Section, colours: plots.Palette) -> Album | None:
    points = tradeoff.points_of_chain(section)
    if len(points) < 2:
        return None
    return Album(
        "Learning against forgetting",
        "Mean accuracy on the targets right after adapting to each, against the accuracy lost on the source at the "
        "end. " + LEGEND_OF_TRADE_OFF,
        (Image("", tradeoff.trade_off(points, colours)),),
        size="wide",
        legend=True,
    )


def _stages(section: Section, colours: plots.Palette) -> Album | None:
    if len(section.domains) < 3 or not _finished(section):
        return None  # with a single target the lines would have two points, which the matrix shows better
    return Album(
        "Accuracy on each domain over the stages",
        "Mean over seeds; bars are their spread. Stages are named after the domain learned in them, "
        "the first one is the source model; a dotted line marks the domain's own stage.",
        tuple(Image(name, plots.stage_lines(section, i, colours)) for i, name in enumerate(section.domains)),
        legend=True,
    )


def _matrices(section: Section) -> Album:
    return Album(
        "Accuracy matrices",
        "Accuracy in percent on each domain (columns) after each stage (rows), mean over seeds. "
        "Frames mark a domain's own stage: below them is forgetting, above them forward transfer.",
        tuple(Image(row.name, plots.heat_map(section, row), row=row.name) for row in _finished(section)),
        size="medium" if len(section.domains) > 2 else "small",
    )


def _epochs(section: Section) -> Album:
    images, silent = [], []
    for row in section.rows:
        found = [
            draw(f"{row.name}: accuracy", curves.accuracy_curves, _speaker(row), row.name),
            draw(f"{row.name}: losses", curves.loss_curves, _speaker(row), row.name),
        ]
        images += [image for image in found if has_lines(image)]
        if not any(map(has_lines, found)):
            silent.append(row.name)
    return Album(
        "Epoch by epoch",
        "Accuracy on the target of each stage, and on the source where it is recorded, with a ring at the epoch that "
        "the selection rule hands on; beside it the mean of every loss term. All stages in a row; the lowest seed of "
        "each method, the other seeds have their own pages.",
        tuple(images),
        notes=(f"No epochs recorded: {', '.join(silent)}.",) if silent and images else (),
    )


def _classes(section: Section, colours: plots.Palette) -> Album | None:
    if len(section.domains) < 2 or not _finished(section):
        return None
    figure, left_out = classes.class_bars(section, colours)
    if figure is None:
        return None
    return Album(
        f"Classes of {section.domains[-1]} before and after",
        "Accuracy of each class of the last target: of the source model (grey) and after the last stage (colours), "
        "mean over seeds, the hardest class first."
        + (f" Of the others, {left_out} classes change less and are not shown." if left_out else ""),
        (Image("", figure),),
        size="wide",
        legend=True,
    )


def _confusions(section: Section) -> Album:
    names = classes.class_names(section)
    found = [(row, classes.total_confusions(row, len(section.domains) - 1, len(names))) for row in _finished(section)]
    stored = [(row, counts) for row, counts in found if not isinstance(counts, str)]
    missing = [f"{row.name}: {reason}." for row, reason in found if isinstance(reason, str)]
    return Album(
        f"Confusions on {section.domains[-1]}",
        "Who is taken for whom on the last target after the last stage, all seeds together: each row is a true class, "
        "its shade the share that is given to the class of the column. The other domains are on the runs' pages.",
        tuple(confusion_image(row.name, counts, names, row.name) for row, counts in stored),
        # A report of runs that store no confusions at all does not need a list of them.
        notes=tuple(missing) if stored or any("damaged" in note for note in missing) else (),
    )


def _features(section: Section) -> Album:
    """The source model's features once, and those after the last stage of each row."""
    before: dict[str, tuple[embedding.Embedding, list[str]]] = {}
    after: list[tuple[str, embedding.Embedding]] = []
    notes: list[str] = []
    for row in section.rows:
        start, end = embedding.read(_speaker(row), 0), embedding.read(_speaker(row), len(section.domains) - 1)
        if isinstance(start, embedding.Embedding):
            before.setdefault(start.digest, (start, []))[1].append(row.name)
        else:
            notes.append(f"{row.name}, before: {start}.")
        if isinstance(end, embedding.Embedding):
            after.append((row.name, end))
        else:
            notes.append(f"{row.name}, after: {end}.")
    titled = [
        ("Before: source model" + (f" of {', '.join(names)}" if len(before) > 1 else ""), sample, "")
        for sample, names in before.values()
    ] + [(f"After: {name}", sample, name) for name, sample in after]
    known: dict[str, embedding.Projection] = {}
    for _, sample, _ in titled:
        if sample.digest not in known:
            known[sample.digest] = embedding.project(sample)
    return Album(
        "Features of source and targets",
        "t-SNE of the network's features before adaptation and after the last stage; the lowest seed of each "
        "method. Clusters that the source (red) and the targets (blue) share are aligned classes; "
        "distances between clusters have no meaning.",
        tuple(
            Image(title, plots.features(known[sample.digest], section.domains), row=row)
            for title, sample, row in titled
        ),
        size="small",
        # A report of runs that store no features at all does not need a list of them.
        notes=tuple(notes) if titled or any("damaged" in note for note in notes) else (),
    )
