"""cosda report: tables and figures from run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.report.formats import FORMATS


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
    has any. A run of 'cosda adapt' has a page about its verdict.

    Example:  cosda report runs -o report.html
    """
    from cosda.files import check_file
    from cosda.records.run import find_runs
    from cosda.report import write_report

    chosen = format or (output.suffix.lstrip(".") if output else "html") or "html"
    path = output or Path(f"report.{chosen}")
    check_file(path)
    write_report(find_runs(runs), path, chosen, select)
    print(f"report written to {path}")
