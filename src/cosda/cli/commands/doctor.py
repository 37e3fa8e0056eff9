"""cosda doctor: what is in a data folder, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import AsJson, FollowLinks
from cosda.cli.tables import print_json


def doctor(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="A folder of domain folders or of images, a file, or hf:ORG/NAME.")
    ],
    follow_links: FollowLinks = False,
    as_json: AsJson = False,
) -> None:
    """Say what is in data and what is wrong.

    Domains, classes, counts, unreadable files, duplicates, missing classes, wrong splits; of a table also which column
    is what. Exit code 2 if anything is wrong.

    Example:  cosda doctor photos
    """
    from cosda.data.doctor import examine

    findings = examine(data, follow_links=follow_links)
    if as_json:
        print_json(findings.as_json())
    else:
        print(findings.as_text())
    raise typer.Exit(0 if findings.ok else 2)
