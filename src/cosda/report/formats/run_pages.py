"""The page of a single run: what it was told, where it ran, and what became of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cosda.files import flatten
from cosda.records.run import Run
from cosda.records.selection import judge
from cosda.records.timing import images_per_second, seconds_per_epoch
from cosda.report.figures import epochs
from cosda.report.figures.base import Panel, panel_of
from cosda.report.figures.confusions import confusion_panel, read_confusions
from cosda.report.figures.routing import routing_map
from cosda.report.figures.style import stage_names
from cosda.report.formats.layout import TextTable
from cosda.report.model.groups import DAMAGED, Group, Section
from cosda.report.model.numbers import EMPTY, percent
from cosda.report.model.settings import show
from cosda.report.tables import experts


@dataclass(frozen=True)
class RunPage:
    """All that a report knows of one run."""

    anchor: str
    run: Run
    section: Section
    group: Group
    matrix: TextTable | None  # accuracy on each domain after each stage, as far as it is measured
    experts: TextTable | None  # of a domain bank, beside the base and the routed bank
    selection: TextTable | None  # for each stage the chosen epoch, and what the other rules would have chosen
    speed: TextTable | None
    panels: tuple[Panel, ...]
    notes: tuple[str, ...]

    @property
    def state(self) -> str:
        """``finished``, or why the run has no numbers."""
        return self.group.state(self.run)

    @property
    def settings(self) -> str:
        """Every setting in a line."""
        return settings_of(self.run)

    @property
    def environment(self) -> str:
        """Versions and machine, one in a line."""
        return environment_of(self.run)


def settings_of(run: Run) -> str:
    """Every setting in a line: its name, its value and where the value comes from."""
    origins = run.config.get("origins") or {}
    settings = flatten(run.config["settings"])
    return _lines([(key, show(value), str(origins.get(key, ""))) for key, value in settings.items()])


def environment_of(run: Run) -> str:
    """Versions and machine, one in a line."""
    return _lines([(key, show(value)) for key, value in flatten(run.environment).items()])


def _lines(texts: Sequence[tuple[str, ...]]) -> str:
    """Columns of text: hundreds of runs as tables would make a page of a hundred thousand elements."""
    cells = [[" ".join(text.split()) for text in line] for line in texts]
    widths = [min(40, max(map(len, column))) for column in zip(*cells, strict=True)]
    lines = ("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(line.rstrip() for line in lines)


def run_pages(sections: Sequence[Section]) -> list[list[RunPage]]:
    """The pages of all runs, by section."""
    runs = [[(run, group) for group in section.groups for run in group.runs] for section in sections]
    anchors = anchors_of([run for found in runs for run, _ in found], "run")
    return [
        [_page(next(anchors), run, section, group) for run, group in found]
        for section, found in zip(sections, runs, strict=True)
    ]


def anchors_of(runs: Sequence[Run], kind: str) -> Iterator[str]:
    """The kind of page and the folder's name without what an address cannot hold; a number where two would be equal."""
    seen: dict[str, int] = {}
    for run in runs:
        anchor = f"{kind}-" + re.sub(r"[^A-Za-z0-9.+_-]+", "-", run.path.name)
        seen[anchor] = seen.get(anchor, 0) + 1
        yield anchor if seen[anchor] == 1 else f"{anchor}~{seen[anchor]}"


def _page(anchor: str, run: Run, section: Section, group: Group) -> RunPage:
    confusions, notes = _confusions(run)
    curves = [
        panel_of("Accuracy", epochs.accuracy_curves, run),
        panel_of("Losses", epochs.loss_curves, run),
        panel_of("Label-free scores, each from its lowest (0) to its highest value (1)", epochs.score_curves, run),
        panel_of("Seconds of each epoch", epochs.time_curve, run),
    ]
    return RunPage(
        anchor=anchor,
        run=run,
        section=section,
        group=group,
        matrix=readable(_matrix, run),
        experts=readable(_experts, run),
        selection=readable(_selection, run),
        speed=readable(speed, run),
        panels=(*(panel for panel in curves if not panel.is_empty), *routing_panels(run), *confusions),
        notes=notes,
    )


def readable(make: Callable[[Run], TextTable | None], run: Run) -> TextTable | None:
    """A table, or none of a run whose records are damaged: its state says so already."""
    try:
        return make(run)
    except DAMAGED:
        return None


def _matrix(run: Run) -> TextTable | None:
    known = {
        (record["stage"], record["domain"]): percent(run.accuracy(record))
        for record in run.of("accuracy", epoch=None, split="test")
    }
    rows = [
        (name, *(known.get((stage, domain), EMPTY) for domain in run.domains))
        for stage, name in enumerate(stage_names(run.domains))
    ]
    return TextTable(("stage", *run.domains), tuple(rows)) if known else None


def _experts(run: Run) -> TextTable | None:
    found = experts.by_domain(run) if run.routing() else {}
    if all(number is None for numbers in found.values() for number in numbers):
        return None  # it is no bank, or nothing has labels
    rows = [
        (domain, *(EMPTY if number is None else percent(number) for number in numbers))
        for domain, numbers in found.items()
    ]
    return TextTable(("domain", *(column.title for column in experts.COLUMNS)), tuple(rows))


def _selection(run: Run) -> TextTable | None:
    """Epochs are counted from 1, as in the figures."""
    rows: list[tuple[str, ...]] = []
    chosen, own = epochs.chosen_epochs(run), str(run.config["select"])
    for stage, name in enumerate(stage_names(run.domains)):
        judged = judge(run, stage) if stage else []
        if stage in chosen and own not in [found.rule for found in judged]:
            rows.append((name, f"{own} (chosen)", str(chosen[stage] + 1), EMPTY, EMPTY))
        for found in judged:
            rule = f"{found.rule} (chosen)" if found.rule == own and stage in chosen else found.rule
            regret = EMPTY if found.regret is None else percent(found.regret)
            correlation = EMPTY if found.correlation is None else f"{found.correlation:.2f}"
            rows.append((name, rule, str(found.epoch + 1), regret, correlation))
    return TextTable(("stage", "rule", "epoch", "regret", "rank correlation"), tuple(rows), names=2) if rows else None


def speed(run: Run) -> TextTable | None:
    """Time and memory of each stage; None where none is recorded."""
    by_step: dict[tuple[int, int], Mapping[str, float]] = {(f["stage"], f["epoch"]): f for f in run.timing}
    rows = []
    for stage in sorted({stage for stage, _ in by_step}):
        facts = [by_step[step] for step in sorted(by_step) if step[0] == stage]
        pace = images_per_second(facts)
        rows.append(
            (
                stage_names(run.domains)[stage],
                str(len(facts)),
                f"{sum(fact['seconds'] for fact in facts):.2f}",
                f"{seconds_per_epoch(facts):.3f}",
                EMPTY if pace is None else f"{pace:.0f}",
                f"{max(fact['peak_bytes'] for fact in facts) / 2**20:.0f}",
            )
        )
    header = ("stage", "epochs", "seconds", "seconds per epoch", "images per second", "peak MiB")
    return TextTable(header, tuple(rows)) if rows else None


def routing_panels(run: Run, title: str = "Routing after the last measured stage") -> list[Panel]:
    """Of a domain bank, which experts images went to."""
    return [panel_of(title, lambda run: routing_map([run]), run)] if any(run.of("routing")) else []


def _confusions(run: Run) -> tuple[list[Panel], tuple[str, ...]]:
    """The last stage's model on each domain of the chain."""
    found = read_confusions(run, len(run.domains) - 1)
    if isinstance(found, str):
        return [], (f"Confusions: {found}.",) if "damaged" in found else ()
    names = [str(name) for name in run.config["classes"]]
    return [
        confusion_panel(f"Confusions on {domain} after the last stage", counts, names)
        for domain, counts in zip(run.domains, found, strict=True)
        if counts is not None
    ], ()
