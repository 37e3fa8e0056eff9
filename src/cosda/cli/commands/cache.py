"""cosda cache: look after packed images and features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import AsJson
from cosda.cli.tables import print_json


def cache(
    what: Annotated[str, typer.Argument(metavar="check|prune", help="Look only, or remove.")],
    cache: Annotated[Path | None, typer.Option(help="The folder; default $COSDA_CACHE or ~/.cache/cosda.")] = None,
    unused: Annotated[
        float | None, typer.Option(min=0, metavar="DAYS", help="Also what was not used for so many days.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check packed images and features, or remove some.

    check reads every byte and compares it with what was written; exit code 2 if anything does not fit. prune removes
    what does not fit, what killed processes and older versions left, and with --unused what nobody used. What is
    removed is made again when it is needed.

    Example:  cosda cache check

    Example:  cosda cache prune --unused 30
    """
    from cosda.data.entries import cache_folder, prune, survey
    from cosda.errors import CosdaError, nearest
    from cosda.files import as_text
    from cosda.units import amount

    if what not in ("check", "prune"):
        raise CosdaError(f"cosda cache has no '{what}'.{nearest(what, ('check', 'prune'))} Say check or prune.")
    if what == "check" and (unused is not None or dry_run):
        raise CosdaError("--unused and --dry-run are options of 'cosda cache prune'.")
    entries = survey(cache) if what == "check" else prune(cache, unused, dry_run)
    faults = [entry for entry in entries if entry.fault]
    if as_json:
        print_json([entry.as_json() for entry in entries])
    else:
        for entry in faults if what == "check" else entries:
            why = entry.fault or f"not used for {entry.unused_days:.0f} days"
            print(f"{entry.path}: {as_text(why)} ({amount(entry.bytes)})")
        done = {"check": "looked at", "prune": "would be removed" if dry_run else "removed"}[what]
        size = amount(sum(entry.bytes for entry in entries))
        print(f"{cache_folder(cache)}: {len(entries)} entries {done}, {size}; {len(faults)} do not fit")
    raise typer.Exit(2 if what == "check" and faults else 0)
