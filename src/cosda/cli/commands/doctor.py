"""cosda doctor: what is in a data folder, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import AsJson, FollowLinks
from cosda.cli.tables import print_json


def doctor(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A folder of domain folders, lists, or an .npz file.")],
    follow_links: FollowLinks = False,
    as_json: AsJson = False,
) -> None:
    """Say what is in a data folder and what is wrong.

    Domains, classes, counts, unreadable files, duplicates, missing classes, wrong splits. Exit code 2 if anything is
    wrong.

    Example:  cosda doctor photos
    """
    from cosda.data.doctor import examine

    findings = examine(data, follow_links=follow_links)
    if as_json:
        print_json(findings.as_json())
    else:
        print(findings.as_text())
    raise typer.Exit(0 if findings.ok else 2)
