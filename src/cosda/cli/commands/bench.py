"""cosda bench: many methods on many pairs and chains."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cosda.bench import ENGINES
from cosda.cli.options import (
    CARRY_HELP,
    Data,
    Following,
    NewNetwork,
    Out,
    Place,
    Quiet,
    Select,
    Settings,
    Training,
    Variant,
    changes_of,
    grouped,
)
from cosda.cli.progress import open_watcher

Workers = Annotated[
    int | None, typer.Option(min=1, help="Runs at a time; default: one a GPU, or one for every --cores-per-run cores.")
]


@dataclass
class Cluster:
    """Where the runs are done, and what each may use."""

    engine: Annotated[str, typer.Option(metavar="NAME", help=f"Where runs are done. {ENGINES.described()}.")] = "local"
    address: Annotated[
        str | None, typer.Option(help="Ray cluster, host:port or auto; default: start one on this machine.")
    ] = None
    workers: Workers = None
    cores_per_run: Annotated[
        int, typer.Option("--cores-per-run", min=1, help="Cores, and so torch threads, of each run.")
    ] = 1
    gpus_per_run: Annotated[
        float | None,
        typer.Option(
            "--gpus-per-run", min=0, help="GPUs of each run, 0.5 lets two share one; default: 1 if there are any."
        ),
    ] = None


@grouped
def bench(
    data: Data,
    network: NewNetwork,
    training: Training,
    settings: Settings,
    cluster: Cluster,
    place: Place,
    following: Following,
    methods: Annotated[str, typer.Option(help="Names with commas, or all.")] = "all",
    pairs: Annotated[str, typer.Option(help="all, source>target with commas, or first letters: A2C,A2P.")] = "",
    chains: Annotated[
        str, typer.Option(help="default (all domains in order), all (in every order), or a>b>c with commas.")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 1,
    variant: Variant = None,
    ablate: Annotated[str, typer.Option(help="Ablations beside the plain methods: all, or names with commas.")] = "",
    select: Select = "last",
    carry: Annotated[
        str | None, typer.Option(metavar="RULES", help=f"{CARRY_HELP} Several with commas give a row each.")
    ] = None,
    out: Out = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, its time and disk.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run many methods on many pairs and chains.

    What is done is not done again. Kill it at any moment: the same command goes on. A run that fails does not stop the
    others; the exit code is then 1.

    Example:  cosda bench digits --methods source,cosda --pairs "print>hand,hand>print" --seeds 3

    Example:  cosda bench digits --methods aad,nrc --chains default --carry last,bank
    """
    from cosda.bench.jobs import expand
    from cosda.bench.run import run_jobs
    from cosda.bench.scheduler import Resources
    from cosda.cli.live import open_onlooker
    from cosda.cli.tables import print_rows, print_tables
    from cosda.config.request import Request

    shared = Request(changes=changes_of(network, training, settings), variant=variant, select=select)
    jobs = expand(
        data,
        shared,
        methods=methods,
        pairs=pairs,
        chains=chains,
        seeds=seeds,
        ablate=ablate,
        carry=carry,
        follow_links=place.follow_links,
    )
    resources = Resources(cluster.engine, cluster.workers, cluster.cores_per_run, cluster.gpus_per_run, cluster.address)
    machine = place.machine(following)
    if dry_run:
        from cosda.bench.estimate import estimate

        found = estimate(jobs, out, resources, machine, open_watcher(quiet))
        print(found.title)
        print_rows(found.rows)
        print(*found.lines(), sep="\n")
        return
    outcome = run_jobs(jobs, out, resources, machine, open_onlooker(quiet))
    if outcome.runs:
        print_tables(outcome.runs)
    for job, reason in outcome.failed.items():
        print(f"failed: {job}: {reason}", file=sys.stderr)
    raise typer.Exit(1 if outcome.failed else 0)
