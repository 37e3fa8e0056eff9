"""cosda demo: see it work on the embedded benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.commands.bench import Workers
from cosda.cli.options import Quiet


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and report.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; with several, all methods run.")] = 1,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """See it work on the embedded benchmark, in a minute.

    Trains a source model, runs the baseline, AaD, CoSDA, AaD with the slow carry and AaD with a domain bank along a
    chain of four domains, prints the table and writes the report. With several seeds also SHOT, NRC and the
    compositions of CoSDA run.

    Example:  cosda demo --seeds 3
    """
    from cosda.bench.demo import run_demo
    from cosda.cli.live import open_onlooker
    from cosda.cli.tables import print_tables
    from cosda.files import check_file
    from cosda.report import write_report

    check_file(out / "report.html")
    runs = run_demo(out, seeds, workers, open_onlooker(quiet))
    print_tables(runs)
    write_report(runs, out / "report.html", "html")
    print(f"report written to {out / 'report.html'}")
