"""Commands that look: evaluate, predict, report, doctor, methods. Parsing and printing; no logic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.app import app, open_machine, print_json, watcher
from cosda.cli.options import (
    Ablate,
    AsJson,
    Cache,
    Device,
    DomainName,
    Images,
    ModelFolder,
    NoPack,
    Quiet,
    Strict,
    Threads,
    Variant,
)
from cosda.report.formats import FORMATS


@app.command()
def evaluate(
    model: ModelFolder,
    images: Images,
    domain: DomainName = None,
    device: Device = "auto",
    threads: Threads = None,
    cache: Cache = None,
    no_pack: NoPack = False,
    strict: Strict = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Measure a model on a labelled domain.

    Images lie in one folder per class, named as the model's classes.

    Example:  cosda evaluate adapted-model office31/webcam
    """
    from cosda import api
    from cosda.cli import progress as terminal

    machine = open_machine(device, threads, cache, no_pack, strict)
    result = api.evaluate(model, images, domain=domain, machine=machine, watcher=watcher(quiet))
    if as_json:
        print_json(result.as_json())
    else:
        terminal.print_evaluation(result)


@app.command()
def predict(
    model: ModelFolder,
    images: Images,
    domain: DomainName = None,
    format: Annotated[str, typer.Option("--format", "-f", help="csv or json.")] = "csv",
    output: Annotated[Path | None, typer.Option("--output", help="File to write; default: standard output.")] = None,
    device: Device = "auto",
    threads: Threads = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Classify images; no labels, no domain ID.

    Writes the class of every image and its probability.

    Example:  cosda predict adapted-model photos/today --output classes.csv
    """
    from cosda import api

    machine = open_machine(device, threads, None, True, strict)
    predictions = api.predict(model, images, domain=domain, machine=machine, watcher=watcher(quiet))
    text = api.write_predictions(predictions, format)
    if output is None:
        sys.stdout.write(text)
    else:
        output.write_text(text, encoding="utf-8")


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUNS...", help="Run folders, or folders that hold them.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; default report.FORMAT.")] = None,
    format: Annotated[str | None, typer.Option("--format", "-f", help=f"{FORMATS.described()}; default by -o.")] = None,
    select: Annotated[
        str | None, typer.Option("--select", help="Draw single-target runs under this selection rule instead.")
    ] = None,
) -> None:
    """Make tables and figures from run folders.

    One self-contained page that works offline, Markdown, CSV, or LaTeX; with the paper's numbers beside ours where it
    has any.

    Example:  cosda report runs -o report.html
    """
    from cosda.records.run import find_runs
    from cosda.report import write_report

    chosen = format or (output.suffix.lstrip(".") if output else "html") or "html"
    path = output or Path(f"report.{chosen}")
    write_report(find_runs(runs), path, chosen, select)
    print(f"report written to {path}")


@app.command()
def doctor(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A folder of domain folders, lists, or an .npz file.")],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Say what is in a data folder and what is wrong.

    Domains, classes, counts, unreadable files, duplicates, missing classes, wrong splits. Exit code 2 if anything is
    wrong.

    Example:  cosda doctor photos
    """
    from cosda.data.doctor import examine

    findings = examine(data)
    if as_json:
        print_json(findings.as_json())
    else:
        print(findings.as_text())
    raise typer.Exit(0 if findings.ok else 2)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="A method, to see its settings.")] = None,
    benchmark: Annotated[str, typer.Option(help="Show the settings for this benchmark, such as office31.")] = "own",
    variant: Variant = None,
    ablate: Ablate = None,
    cost: Annotated[bool, typer.Option("--cost", help="Show what methods cost in the runs below --runs.")] = False,
    runs: Annotated[Path, typer.Option(help="Folder of run folders, for --cost.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the methods, or the settings of one.

    Each setting is shown with where its value comes from. With --cost: forward passes per step, seconds per epoch and
    memory, from finished runs.

    Example:  cosda methods cosda --benchmark office31 --variant authors
    """
    from cosda.cli import progress as terminal
    from cosda.config import catalogue
    from cosda.records.run import find_runs

    if cost:
        rows = catalogue.cost_rows(find_runs([runs]))
    else:
        rows = catalogue.settings_rows(name, benchmark, variant, ablate) if name else catalogue.all_methods()
    if as_json:
        print_json(rows)
    else:
        terminal.print_rows(rows)
