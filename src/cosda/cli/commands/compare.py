"""cosda compare: what differs between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import AsJson
from cosda.cli.tables import print_json


def compare(
    run_a: Annotated[Path, typer.Argument(metavar="RUN_A", help="A run folder.")],
    run_b: Annotated[Path, typer.Argument(metavar="RUN_B", help="Another one.")],
    as_json: AsJson = False,
) -> None:
    """Say what differs between two runs.

    In what they are, their settings, where they ran, their accuracies and their cost; with a warning where the two may
    not be compared.

    Example:  cosda compare runs/digits-nrc-s0-1c2d3e4f5a runs/digits-cosda-s0-6b7c8d9e0f
    """
    from cosda.cli.tables import print_comparison
    from cosda.report.compare.comparison import compare as compare_runs

    comparison = compare_runs(run_a, run_b)
    if as_json:
        print_json(comparison.as_json())
    else:
        print_comparison(comparison)
