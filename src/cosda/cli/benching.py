"""Commands that make many runs: bench and demo. Parsing and printing; no logic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cosda.bench import ENGINES
from cosda.cli.app import app, open_machine, setting_changes, watcher
from cosda.cli.options import (
    Batch,
    Cache,
    Compile,
    Data,
    Device,
    Encoder,
    Epochs,
    Freeze,
    Log,
    NoPack,
    Out,
    Precision,
    Quiet,
    Select,
    Sets,
    Size,
    Strict,
    Weights,
)

Workers = Annotated[
    int | None, typer.Option(min=1, help="Runs at a time; default: one a GPU, or one for every --cores-per-run cores.")
]
Engine = Annotated[str, typer.Option(help=f"Where runs are done. {ENGINES.described()}.")]
Address = Annotated[
    str | None, typer.Option(help="Ray cluster, host:port or auto; default: start one on this machine.")
]
Cores = Annotated[
    int, typer.Option("--cores-per-run", "--cpus-per-run", min=1, help="Cores, and so torch threads, of each run.")
]
Gpus = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-run", min=0, help="GPUs of each run, 0.5 lets two share one; default: 1 if there are any."
    ),
]
Carries = Annotated[
    str | None,
    typer.Option(
        metavar="RULES",
        help="What a stage hands on: last, interpolate=0.5, along=0.5 or auto; several with commas give a row each.",
    ),
]


@app.command()
def bench(
    data: Data,
    methods: Annotated[str, typer.Option(help="Names with commas, or all.")] = "all",
    pairs: Annotated[str, typer.Option(help="all, source>target with commas, or first letters: A2C,A2P.")] = "",
    chains: Annotated[
        str, typer.Option(help="default (all domains in order), all (in every order), or a>b>c with commas.")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 1,
    profile: Annotated[
        str | None, typer.Option("--profile", "--variant", help="Variant of the methods: 'paper' or 'authors'.")
    ] = None,
    ablate: Annotated[str, typer.Option(help="Ablations beside the plain methods: all, or names with commas.")] = "",
    select: Select = "last",
    carry: Carries = None,
    encoder: Encoder = None,
    weights: Weights = None,
    size: Size = None,
    freeze_encoder: Freeze = False,
    epochs: Epochs = None,
    batch_size: Batch = None,
    set_: Sets = None,
    out: Out = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, its time and disk.")] = False,
    engine: Engine = "local",
    address: Address = None,
    workers: Workers = None,
    cores_per_run: Cores = 1,
    gpus_per_run: Gpus = None,
    device: Device = "auto",
    precision: Precision = None,
    compile: Compile = False,
    cache: Cache = None,
    no_pack: NoPack = False,
    strict: Strict = False,
    log: Log = "",
    quiet: Quiet = False,
) -> None:
    """Run many methods on many pairs and chains.

    What is done is not done again. Kill it at any moment: the same command goes on. A run that fails does not stop the
    others; the exit code is then 1.

    Example:  cosda bench digits --methods source,cosda --pairs "print>hand,hand>print" --seeds 3
    """
    from cosda.bench.jobs import expand
    from cosda.bench.run import run_jobs
    from cosda.bench.scheduler import Resources
    from cosda.cli import progress as terminal
    from cosda.cli.live import open_onlooker

    named = {"adapt.epochs": epochs, "adapt.batch_size": batch_size, "network.precision": precision}
    changes = setting_changes(set_, named, encoder, weights, size, freeze_encoder)
    jobs = expand(data, methods, pairs, chains, seeds, profile, changes, ablate, select, carry)
    resources = Resources(engine, workers, cores_per_run, gpus_per_run, address)
    machine = open_machine(device, None, cache, no_pack, strict, log, compile)
    if dry_run:
        from cosda.bench.estimate import estimate

        found = estimate(jobs, out, resources, machine, watcher(quiet))
        print(found.title)
        terminal.print_rows(found.rows)
        print(*found.lines(), sep="\n")
        return
    outcome = run_jobs(jobs, out, resources, machine, open_onlooker(quiet))
    if outcome.runs:
        terminal.print_tables(outcome.runs)
    for job, reason in outcome.failed.items():
        print(f"failed: {job}: {reason}", file=sys.stderr)
    raise typer.Exit(1 if outcome.failed else 0)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and report.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many; with several, all methods run.")] = 1,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """See it work on the embedded benchmark, in two minutes.

    Trains a source model, runs the baseline, AaD, CoSDA, and AaD with the slow carry along a chain of four domains,
    prints the table and writes the report. With several seeds also SHOT, NRC and the compositions of CoSDA run.

    Example:  cosda demo --seeds 3
    """
    from cosda.bench.demo import run_demo
    from cosda.cli import progress as terminal
    from cosda.cli.live import open_onlooker
    from cosda.report import write_report

    runs = run_demo(out, seeds, workers, open_onlooker(quiet))
    terminal.print_tables(runs)
    write_report(runs, out / "report.html", "html")
    print(f"report written to {out / 'report.html'}")
