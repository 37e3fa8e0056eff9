"""Tables on standard output. No torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cosda.metrics import MEASURES
from cosda.records.run import Run
from cosda.units import amount

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cosda.api import Evaluation
    from cosda.judge.monitor import Drift
    from cosda.models.contents import Contents, HeldDomain
    from cosda.records.images import ComparedImage
    from cosda.records.lineage import Step
    from cosda.records.verdict import Verdict
    from cosda.report.compare.comparison import Comparison
    from cosda.report.diff.changes import Diff
    from cosda.report.model.groups import Section
    from cosda.report.model.table import Cell


VERDICT_COLOURS = {"accepted": "green", "doubtful": "yellow", "rejected": "red"}
VERDICT_WIDTH = 100  # columns
MOST_REASONS, MOST_SHOWN = 5, 6  # a verdict is one screen
IN_PLACE = ("profile", "drop")  # steps that are written into the folder of their model
HEADLINES = {"top1": "accuracy", "per-class": "mean accuracy of the classes"}


def print_rows(rows: Sequence[Mapping[str, Any]], wrapped: str | None = None) -> None:
    """A table with a column for each key.

    ``wrapped`` names the one column that gives way on a narrow terminal; columns then stand closer together.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=wrapped is not None)
    for key in rows[0]:
        table.add_column(key, overflow="fold", no_wrap=wrapped not in (None, key))
    for row in rows:
        table.add_row(*(Text(_plain(value)) for value in row.values()))
    _console().print(table)


def print_run(run: Run) -> None:
    """The accuracy matrix of one run and what follows from it."""
    from cosda.report.model.groups import group_runs

    summary = run.summary()
    console = _console()
    if summary["accuracy"] is None:
        console.print(f"{run.label}: nothing to measure, because a domain of the chain has no labels here.")
    else:
        title = f"{run.label}: {HEADLINES[run.config['headline']]}, %"
        table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False)
        for name in ("after", *run.domains):
            table.add_column(name)
        for stage, row in zip(run.domains, summary["accuracy"], strict=True):
            table.add_row(stage, *(f"{value:.2%}".rstrip("%") for value in row))
        console.print(table)
        names = [name for name, measure in MEASURES.items() if measure.short and summary[name] is not None]
        numbers = ", ".join(f"{name.replace('_', ' ')} {summary[name]:.2%}" for name in names)
        console.print(f"{numbers} (model of each stage: rule '{summary['select']}')", soft_wrap=True)
        for section in group_runs([run]).sections:
            _print_banks(section)
    console.print(f"run folder: {run.path}", soft_wrap=True)


def print_tables(runs: Sequence[Run]) -> None:
    """One line per method: mean and spread over seeds of the main numbers, and of the accuracy on each domain."""
    from cosda.report.model.groups import group_runs
    from cosda.report.tables.summary import short_table

    for section in group_runs(runs).sections:
        found = short_table(section)
        measured = HEADLINES[section.headline]
        title = f"{section.title}: {measured}, %, after the last stage, epoch chosen by rule '{section.select}'"
        table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
        for name in ("method", *(column.title for column in found.columns)):
            table.add_column(name)
        for row in found.rows:
            table.add_row(Text(row.name), *map(_cell, row.cells))
        _console().print(table)
        _print_banks(section)


def _print_banks(section: Section) -> None:
    """What it costs the domain banks of a section that they were not told the domains."""
    from cosda.report.model.numbers import show_cell
    from cosda.report.tables.experts import AVERAGE, COLUMNS, expert_tables

    for row in (row for table in expert_tables([section]) for row in table.rows):
        _, expert, routed, cost = map(show_cell, row.cells, COLUMNS)
        if row.part == AVERAGE and row.cells[1].values:
            text = f"without a domain ID the average is {routed}%, with the true domains it would be {expert}%"
            _console().print(f"{row.name}: {text}: routing costs {cost} points", markup=False, soft_wrap=True)


def print_evaluation(evaluation: Evaluation) -> None:
    """Accuracy of each class and over all images."""
    print_rows(
        [
            {"class": row["class"], "images": row["images"], "correct": row["correct"]}
            for row in evaluation.as_json()["classes"]
        ]
    )
    text = f"{evaluation.domain}: accuracy {evaluation.top1:.2%}, mean over classes {evaluation.per_class:.2%}"
    text += f"; {len(evaluation.skipped)} images could not be read" if evaluation.skipped else ""
    _console().print(text, markup=False)


def print_source(run: Run, domain: str, model: Path) -> None:
    """How good a source model is on images that it was not trained on, and what to do with it."""
    # In the transductive protocol the test images were trained on, so held-out ones are the better witnesses.
    measured = [*run.of("accuracy", split="test"), *run.of("accuracy", split="holdout")][-1:]
    splits = {"holdout": "held-out", "test": "test"}
    for record in measured:
        images, accuracy = sum(record["images"]), run.accuracy(record)
        print(f"{domain}: accuracy {accuracy:.1%} on {images} {splits[record['split']]} images")
    print(f"model written to {model}")
    print(f"next: cosda adapt {model} NEW_IMAGES --to ADAPTED_MODEL --method aad --carry bank")


def print_imported(contents: Contents, assumed: Sequence[str] = ()) -> None:
    """What was made of a model from elsewhere, and what to do with it.

    ``assumed`` are options of preprocessing that nobody gave, and for which no library has values.
    """
    from cosda.models.builders import function_for
    from cosda.models.opaque import is_graph

    model, opaque = contents.path, is_graph(contents.architecture)
    function = function_for(contents.architecture)
    build = f" --build {function}" if function else ""
    for line in _network_lines(contents):
        _console().print(line, markup=False)
    assumed = [name for name in assumed if not (opaque and name == "--size")]  # which a graph mostly says itself
    if assumed:
        print(f"careful: {', '.join(assumed)} as for ImageNet, since they were not given: is that how it was trained?")
    print(f"model written to {model}; it gives finite logits for two images of noise")
    if opaque:
        print("it is a graph, which predicts and cannot be trained: 'cosda adapt' needs the network itself")
    print("next:")
    print(f"  cosda evaluate {model} LABELLED{build}    # is it as accurate as you know it?")
    print(f"  cosda profile {model} LABELLED --labelled{build}    # of the kind that it was trained on")
    print(f"  cosda monitor {model} NEW_IMAGES{build}")
    if not opaque:
        print(f"  cosda adapt {model} NEW_IMAGES --to ADAPTED_MODEL --method aad --carry bank{build}")


def print_drifts(found: Sequence[Drift]) -> None:
    """For each folder what a model makes of its images, and what to do."""
    print_rows([_drift_row(one) for one in found], wrapped="images")
    for one in found:
        answer = {True: "yes", False: "no", None: "cannot be told"}[one.adapt]
        left_out = f" ({len(one.skipped)} could not be read)" if one.skipped else ""
        _console().print(f"{one.images}: adapt now? {answer}: {one.reason}{left_out}", markup=False)


def _drift_row(drift: Drift) -> dict[str, Any]:
    """A row of the table of folders; the three places stand under short names."""
    estimate = drift.estimate
    return {
        "images": drift.images,
        "count": drift.count,
        "most like": " + ".join(drift.domains),
        "unlike": f"{drift.unlike:.0%}",
        **{place[:5]: _p_value(value) for place, value in drift.places.items()},
        "p": _p_value(drift.p_value),
        "accuracy": f"{estimate.accuracy:.0%} ({estimate.low:.0%}–{estimate.high:.0%})" if estimate else "–",
        "adapt": {True: "yes", False: "no", None: "–"}[drift.adapt],
    }


def _p_value(value: float | None) -> str:
    return "–" if value is None else "<.001" if value < 0.001 else f"{value:.3f}"


def print_verdict(verdict: Verdict, run: Path | None = None, incoming: Path | None = None) -> None:
    """Whether an adaptation helped, on one screen, and what to do next.

    ``run`` is its run folder and ``incoming`` the folder of the model that it began with, where they are known.
    """
    from cosda.report.model import wording

    console = _console()
    console.width = min(console.width, VERDICT_WIDTH)
    console.print(
        Text.assemble(
            (f" {verdict.verdict.upper()} ", f"bold reverse {VERDICT_COLOURS[verdict.verdict]}"),
            f" {_cut(verdict.domain)}, {verdict.images} images, {verdict.method}: {wording.decided(verdict)}",
        )
    )
    _print_pairs(console, [("•", " ".join(reason.split())) for reason in verdict.reasons[:MOST_REASONS]])
    _print_pairs(console, list(_verdict_rows(verdict)))
    report = f"cosda report {run or 'RUN'} -o report.html"
    older = incoming or "the older folder"
    console.print(
        {
            "accepted": f"next: use it; {report} shows the images that changed; to go back, use {older}",
            "doubtful": f"next: {report}, or --check a few labelled images; until then {older} is the safe choice",
            "rejected": f"next: go on with {older}, which is as it was; {report} shows more; {wording.again(verdict)}",
        }[verdict.verdict],
        markup=False,
        soft_wrap=True,
    )


def _print_pairs(console: Console, pairs: Sequence[tuple[str, str]]) -> None:
    """Each text behind its name, within the width of the console."""
    grid = Table.grid(padding=(0, 1), pad_edge=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in pairs:
        grid.add_row(Text(name), Text(text))
    console.print(grid)


def _verdict_rows(verdict: Verdict) -> Iterator[tuple[str, str]]:
    from cosda.report.model import wording
    from cosda.report.tables.adaptations import known_agreement, most_moved

    before, after, check = verdict.before, verdict.after, verdict.check
    if check is not None:
        found = f"{check.before.text} → {check.after.text}: {wording.paired(check)}"
        yield f"{check.after.images} labelled images", found
    if before is not None:
        texts = [said.estimate.text if said and said.estimate else "–" for said in (before, after)]
        without = before.estimate is None and (after is None or after.estimate is None)
        yield "estimated accuracy", wording.NO_ESTIMATE if without else " → ".join(texts)
    if before is None or after is None:
        return
    yield "mean confidence", f"{before.confidence:.0%} → {after.confidence:.0%}"
    if verdict.changed is not None:
        yield "class changed", f"{verdict.changed:.0%} of the images"
    known = sorted(known_agreement(verdict).items(), key=lambda item: item[1])
    if known:
        shown = ", ".join(f"{_cut(name)} {share:.0%}" for name, share in known[:MOST_SHOWN])
        more = f", {len(known) - MOST_SHOWN} more domains" if len(known) > MOST_SHOWN else ""
        yield "agreement, known", shown + more
    moved = [(before.classes[i], after.classes[i], verdict.classes[i]) for i in most_moved(before, after, MOST_SHOWN)]
    others = sum(b != a for b, a in zip(before.classes, after.classes, strict=True)) - MOST_SHOWN
    if texts := [f"{_cut(name)}: {b} → {a}" for b, a, name in moved if b != a]:
        yield "images by class", ", ".join(texts) + (f", {others} more moved less" if others > 0 else "")


def print_model(contents: Contents) -> None:
    """What a model folder holds: classes, network, domains, lineage."""
    console, text = _console(), ""
    seen, base = contents.preprocessing, contents.domains[0]
    lines = _network_lines(contents)
    if count := len(contents.domains) - 1:
        more = contents.bytes - base.bytes
        size = f"{amount(more)} with all profiles, {more / base.bytes:.0%} of the base"
        routed = "; routed by features" if contents.domains[1].late else ""
        lines.append(f"domain bank: {count} expert{'s' * (count > 1)}; {size}{routed}")
    for line in lines:
        console.print(line, markup=False)
    print_rows([_domain_row(each) for each in contents.domains], wrapped="made by")
    if base.images is None:
        text = "The base has no profile"
    elif not base.images:
        text = "The base's profile is of BatchNorm statistics alone"
    elif seen.of_images and base.late != contents.domains[-1].late:
        text = "The base's profile is of another kind than those of the experts"
    if text:
        console.print(f"{text}: 'cosda profile MODEL FOLDER' makes one of images.\n", markup=False)
    if contents.lineage:
        print_rows([_lineage_row(step) for step in contents.lineage], wrapped="details")


def _network_lines(contents: Contents) -> list[str]:
    """Classes, network and input."""
    from cosda.data.readers import listed
    from cosda.models.architecture import WRAPPED
    from cosda.models.graphs import FORMATS

    network, seen = contents.architecture, contents.preprocessing
    graph = FORMATS.get(network.encoder)
    name = f"a graph, {graph.title}" if graph else network.encoder
    if network.encoder == WRAPPED:
        builder = network.builder or ""
        name = builder if "/" in builder else "your own" + f" (built by {builder})" * bool(builder)
    masks = f", masks for {', '.join(network.domains)}" if network.domains else ""
    foreign = graph is not None or network.encoder == WRAPPED
    width = f"{network.bottleneck} features" if foreign else f"bottleneck {network.bottleneck}"
    size = amount(contents.domains[0].bytes)
    pixels = f"{seen.size} × {seen.size} pixels" + (", the centre of each" if seen.profile == "shot" else "")
    return [
        f"{contents.path}: {len(contents.classes)} classes: {listed(contents.classes, 20)}",
        f"network: {name}, {width}{masks}, {size}",
        f"input: images of {pixels}, mean {_numbers(seen.mean)}, deviation {_numbers(seen.std)}"
        if seen.of_images
        else f"input: feature vectors of width {network.input_width}",
    ]


def print_history(steps: Sequence[Step]) -> None:
    """The chain that led to a model, and where each of its models lies."""
    console = _console()
    if not steps:
        console.print("nobody wrote down how this model came about")
        return
    print_rows([_step_row(number, step) for number, step in enumerate(steps, start=1)], wrapped="made by")
    for number, step in enumerate(steps, start=1):
        for reason in step.reasons if step.verdict != "accepted" else ():
            console.print(f"step {number}, {step.verdict}: {reason}", markup=False, soft_wrap=True)
    console.print("The model of each step; to go back, use an older folder:", markup=False)
    states = {None: "", "gone": ", gone", "replaced": ", where another model lies now"}
    for number, step in enumerate(steps, start=1):
        state = f", {amount(step.bytes)}" if step.bytes is not None else states.get(step.found, "")
        later = steps[number] if number < len(steps) else None
        unknown = "where it lay was not written down"
        if later is not None and later.step in IN_PLACE:
            unknown = f"replaced in its folder by step {number + 1}"
        console.print(f"{number:>3}  {step.folder or unknown}{state}", markup=False, soft_wrap=True)


def _step_row(number: int, step: Step) -> dict[str, Any]:
    return {
        "": number,
        "date": step.date or "–",
        "step": step.step,
        "domain": step.domain or "–",
        "images": "–" if step.images is None else f"{step.images:,}",
        "made by": step.made_by or "–",
        "verdict": step.verdict or "–",
        "estimate": step.change or "–",
    }


def print_diff(diff: Diff, most: int) -> None:
    """How many images change from which class to which, and the most confident of them."""
    console = _console()
    changed = len(diff.changed)
    text = f"{changed} of {diff.images} images change class, {diff.share:.1%}"
    console.print(text + (f"; {len(diff.skipped)} could not be read" if diff.skipped else ""), markup=False)
    if changed and most:
        pairs = list(diff.pairs.items())
        print_rows([{"A says": a, "B says": b, "images": images} for (a, b), images in pairs[:most]], wrapped="A says")
        if len(pairs) > most:
            console.print(f"and {len(pairs) - most} more pairs of classes (--most)")
        print_rows([_change_row(one) for one in diff.changed[:most]], wrapped="image")
        if changed > most:
            console.print(f"and {changed - most} more images (--most, --output)")


def _change_row(one: ComparedImage) -> dict[str, Any]:
    return {
        "image": one.image,
        "A says": f"{one.before} {one.before_probability:.0%}",
        "B says": f"{one.after} {one.after_probability:.0%}",
    }


def _domain_row(held: HeldDomain) -> dict[str, Any]:
    """A row of the table of domains."""
    return {
        "domain": held.domain,
        "images": {None: "–", 0: "BatchNorm"}.get(held.images, held.images),
        "bits": held.bits or "base",
        "expert": amount(held.bytes),
        "of base": f"{held.share:.1%}" if held.bits else "100%",
        "profile": amount(held.profile_bytes) if held.profile_bytes else "–",
        "made by": (held.method or "–") + (f" from {held.began}" if held.began else ""),
        "date": held.date or "–",
    }


def _lineage_row(step: Mapping[str, Any]) -> dict[str, Any]:
    """A step that a model has gone through; one without a name, such as where it was wrapped, tells all it has."""
    settings = step.get("settings") or {}
    epochs = step.get("epochs", settings.get("epochs"))
    details = [
        "step" not in step and ", ".join(f"{key} {value}" for key, value in step.items()),
        step.get("benchmark") and f"of {step['benchmark']}",
        step.get("network"),
        step.get("weights") and f"weights {step['weights']}",
        step.get("method"),
        step.get("variant") and f"variant {step['variant']}",
        epochs is not None and f"{epochs} epoch{'s' * (epochs != 1)}",
        "seed" in step and f"seed {step['seed']}",
        step.get("images") and f"{step['images']} images",
        step.get("carry") and f"carry {step['carry']}" + (f" {step['share']:g}" if step.get("share") else ""),
        step.get("bits") and f"{step['bits']} bits",
        step.get("began") and f"began from {step['began']}",
    ]
    return {
        "lineage": step.get("step", "–"),
        "domain": step.get("domain", "–"),
        "date": step.get("date", "–"),
        "details": ", ".join(str(detail) for detail in details if detail),
    }


def _cut(name: str, longest: int = 24) -> str:
    """A name from data on one line."""
    name = " ".join(name.split())
    return name if len(name) <= longest else name[: longest - 1] + "…"


def _numbers(values: Sequence[float]) -> str:
    """Numbers in brackets; one where all are the same."""
    return "/".join(f"{value:g}" for value in (values[:1] if len(set(values)) == 1 else values))


def print_comparison(comparison: Comparison) -> None:
    """What differs between two runs, table by table."""
    from cosda.report.compare.text import tables

    console = _console()
    for side, run in (("A", comparison.a), ("B", comparison.b)):
        missing = comparison.missing.get(side.lower())
        text = f"{side}: {run.label}, {run.path}" + (f" – no results: {missing}" if missing else "")
        console.print(text, markup=False, soft_wrap=True)
    for warning in comparison.warnings:
        console.print(f"careful: {warning}", markup=False, soft_wrap=True)
    for title, rows in tables(comparison):
        console.print(f"\n{title}" if rows else f"\n{title}: the same", markup=False)
        if rows:
            print_rows(rows)


def _cell(cell: Cell) -> str:
    if cell.mean is None:
        return "–"
    spread = f" ±{100 * cell.spread:.1f}" if cell.spread is not None else ""
    return f"{100 * cell.mean:.1f}{spread}"


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value)


def _console() -> Console:
    """Where no terminal says how wide it is, lines are as long as they need to be."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def print_json(value: Any) -> None:
    """A result for programs, on standard output."""
    print(json.dumps(value, indent=1, ensure_ascii=False))
