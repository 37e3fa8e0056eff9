"""cosda methods: what methods there are, and the settings of one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import Ablate, AsJson, Variant
from cosda.cli.tables import print_json


def methods(
    name: Annotated[str | None, typer.Argument(help="A method, to see its settings.")] = None,
    benchmark: Annotated[str, typer.Option(help="Show the settings for this benchmark, such as office31.")] = "own",
    variant: Variant = None,
    ablate: Ablate = None,
    encoders: Annotated[bool, typer.Option("--encoders", help="List the encoders instead.")] = False,
    cost: Annotated[bool, typer.Option("--cost", help="Show what methods cost in the runs below --runs.")] = False,
    runs: Annotated[Path, typer.Option(help="Folder of run folders, for --cost.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the methods, or the settings of one.

    Each setting is shown with where its value comes from. With --cost: forward passes per step, seconds per epoch and
    memory, from finished runs. With --encoders: what --encoder takes.

    Example:  cosda methods cosda --benchmark office31 --variant authors
    """
    from cosda.cli.tables import print_rows
    from cosda.config import catalogue
    from cosda.records.run import find_runs

    if encoders:
        rows = catalogue.all_encoders()
    elif cost:
        found = find_runs([runs])
        for run in (run for run in found if run.damage):
            print(f"left out {run.path}: {run.damage}", file=sys.stderr)
        rows = catalogue.cost_rows(found)
    else:
        rows = catalogue.settings_rows(name, benchmark, variant, ablate) if name else catalogue.all_methods()
    if as_json:
        print_json(rows)
    else:
        print_rows(rows)
