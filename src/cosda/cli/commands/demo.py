"""cosda demo: see it work on the embedded benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.commands.bench import Workers
from cosda.cli.options import Quiet


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and report.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 3,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """See it work on the embedded benchmark, in minutes.

    Trains source models, runs the baseline, SHOT, NRC, AaD, CoSDA and its compositions, and AaD with the slow carry
    along a chain of four domains, prints the table and writes the report.

    Example:  cosda demo --seeds 1
    """
    from cosda.bench.demo import run_demo
    from cosda.cli.live import open_onlooker
    from cosda.cli.tables import print_tables
    from cosda.report import write_report

    runs = run_demo(out, seeds, workers, open_onlooker(quiet))
    print_tables(runs)
    write_report(runs, out / "report.html", "html")
    print(f"report written to {out / 'report.html'}")
