"""The page of an adaptation without labels: whether it helped, and everything that this is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cosda.records.run import Run
from cosda.records.verdict import FOLDER, Estimate, Verdict, Why
from cosda.report.figures import adaptations as figures
from cosda.report.figures import epochs
from cosda.report.figures.base import Figure, Panel, panel_of
from cosda.report.formats.layout import TextTable
from cosda.report.formats.run_pages import (
    anchors_of,
    environment_of,
    readable,
    routing_panels,
    settings_of,
    speed,
)
from cosda.report.formats.shown import Shown, data_address
from cosda.report.model import wording
from cosda.report.model.adaptations import Adaptation
from cosda.report.model.groups import DAMAGED
from cosda.report.model.numbers import EMPTY
from cosda.report.model.table import Table
from cosda.report.tables.adaptations import known_agreement
from cosda.report.tables.contents import JudgedRun
from cosda.validators import VALIDATORS

LARGEST = 200_000  # bytes of an image that a page carries; a thumbnail has a few thousand
PICTURES = (b"\xff\xd8", b"\x89PNG")  # how a JPEG and a PNG file begin
MOST_KNOWN = 3  # domains that a tile names


@dataclass(frozen=True)
class Tile:
    """A number that a reader looks for first."""

    title: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class AdaptationPage:
    """All that a report knows of one adaptation."""

    anchor: str
    adaptation: Adaptation
    tables: tuple[Table, ...]
    tiles: tuple[Tile, ...]
    figures: tuple[Figure, ...]
    changed: tuple[Shown, ...]  # images whose class changed
    unsure: tuple[Shown, ...]  # least confident ones
    speed: TextTable | None

    @property
    def settings(self) -> str:
        """Every setting in a line."""
        return settings_of(self.adaptation.run)

    @property
    def environment(self) -> str:
        """Versions and machine, one in a line."""
        return environment_of(self.adaptation.run)


def adaptation_pages(judged: Sequence[JudgedRun]) -> list[AdaptationPage]:
    """The pages of all adaptations."""
    anchors = anchors_of([one.adaptation.run for one in judged], "adaptation")
    return [_page(anchor, one) for anchor, one in zip(anchors, judged, strict=True)]


def _page(anchor: str, judged: JudgedRun) -> AdaptationPage:
    adaptation = judged.adaptation
    verdict, run = adaptation.verdict, adaptation.run
    return AdaptationPage(
        anchor,
        adaptation,
        judged.tables,
        () if verdict is None else tuple(_tiles(verdict)),
        tuple(figure for figure in _figures(run, verdict) if figure.panels),
        _shown(adaptation, "changed"),
        _shown(adaptation, "unsure"),
        readable(speed, run),
    )


def _shown(adaptation: Adaptation, why: Why) -> tuple[Shown, ...]:
    images = (image for image in adaptation.images if image.why == why)
    return tuple(Shown(image, _picture(adaptation.run, image.thumbnail)) for image in images)


def _tiles(verdict: Verdict) -> list[Tile]:
    before, after, check = verdict.before, verdict.after, verdict.check
    tiles = []
    if check is not None:
        text = f"{check.before.accuracy:.0%} → {check.after.accuracy:.0%}"
        tiles.append(Tile(f"Accuracy on {check.after.images} labelled images", text, wording.paired(check)))
    estimates = [said.estimate if said else None for said in (before, after)]
    if any(estimates):
        tiles.append(Tile("Estimated accuracy", " → ".join(map(_percent, estimates)), _intervals(estimates)))
    elif before is not None:
        tiles.append(Tile("Estimated accuracy", EMPTY, wording.NO_ESTIMATE))
    if verdict.changed is not None:
        tiles.append(Tile("Images whose class changed", f"{verdict.changed:.0%}", f"of {verdict.images}"))
    if before is not None and after is not None:
        tiles.append(Tile("Mean confidence", f"{before.confidence:.0%} → {after.confidence:.0%}"))
    known = known_agreement(verdict)
    if known:
        lowest = sorted(known.items(), key=lambda item: item[1])[:MOST_KNOWN]
        each = ", ".join(f"{name} {share:.0%}" for name, share in lowest) + ", …" * (len(known) > MOST_KNOWN)
        tiles.append(Tile("Agreement on what was known", f"{min(known.values()):.0%}", each if len(known) > 1 else ""))
    return tiles


def _percent(estimate: Estimate | None) -> str:
    return EMPTY if estimate is None else f"{estimate.accuracy:.0%}"


def _intervals(estimates: Sequence[Estimate | None]) -> str:
    texts = [EMPTY if one is None else f"{one.low:.0%} to {one.high:.0%}" for one in estimates]
    return f"{texts[0]} before, {texts[1]} after"


def _figures(run: Run, verdict: Verdict | None) -> list[Figure]:
    found: list[Figure] = []
    if verdict is not None:
        panels = [
            Panel("Accuracy", figures.estimates(verdict)),
            Panel("Confidence", figures.confidences(verdict)),
        ]
        classes = Panel("", figures.predicted_classes(verdict))
        found += [
            Figure(
                "Before and after",
                "Grey: the incoming model; blue: the adapted one. The bars of an estimate hold the true accuracy in "
                "nine of ten cases; estimators that give no interval are points.",
                tuple(panel for panel in panels if not panel.is_empty),
            ),
            Figure(
                "Images of each predicted class",
                "How many of the new images each class is given to. A class that takes or loses very many is a sign of "
                "collapse, unless the new place is like that.",
                () if classes.is_empty else (classes,),
                size="wide",
            ),
        ]
    found.append(
        Figure(
            "Routing",
            "Percent of the new images that went to each expert of the domain bank, which was not told their domain.",
            tuple(routing_panels(run, "")),
        )
    )
    losses = panel_of("Loss terms", epochs.loss_curves, run)
    scores = _scores(run, verdict)
    found.append(
        Figure(
            "Epoch by epoch",
            "In absolute values. Epoch 0 is the incoming model, where its score is known; a ring marks the epoch whose "
            "model was handed on. Of each score more is better, but for a model that collapses.",
            (*(() if losses.is_empty else (losses,)), *scores),
            size="small",
            notes=tuple(f"{one.title}: {VALIDATORS[one.title].title}." for one in scores if one.title in VALIDATORS),
        )
    )
    return found


def _scores(run: Run, verdict: Verdict | None) -> list[Panel]:
    incoming = verdict.before.scores if verdict is not None and verdict.before is not None else {}
    try:
        if verdict is None or any(record["images"] != verdict.images for record in run.of("validation")):
            incoming = {}  # scores of other images, which would be a step that nobody made
        plots = epochs.absolute_scores(run, incoming)
    except DAMAGED as error:
        return [Panel("Label-free scores", reason=f"damaged records ({type(error).__name__}: {error})")]
    return [Panel(name, plot) for name, plot in plots.items()]


def _picture(run: Run, thumbnail: str | None) -> str | None:
    """A thumbnail as a part of the page; None where there is none that can be read."""
    if thumbnail is None:
        return None
    try:
        content = (run.path / FOLDER / thumbnail).read_bytes()
    except (OSError, ValueError):
        return None
    return data_address(content) if len(content) <= LARGEST and content.startswith(PICTURES) else None
