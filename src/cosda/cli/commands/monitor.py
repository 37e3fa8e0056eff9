"""cosda monitor: do new images still look like what a model knows?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import AsJson, Loading, ModelFolder, Place, Quiet, grouped
from cosda.cli.progress import open_watcher
from cosda.cli.tables import print_json

ADAPT, UNTOLD = 4, 5  # exit codes; 1 to 3 mean other things


@grouped
def monitor(
    model: ModelFolder,
    images: Annotated[
        list[Path],
        typer.Argument(
            metavar="IMAGES...", help="Folders of images, each of one place and time; or CSV files, lists, .npz."
        ),
    ],
    loading: Loading,
    place: Place,
    alpha: Annotated[
        float, typer.Option(metavar="P", help="The rate of false alarms that is accepted; a smaller p-value is drift.")
    ] = 0.05,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Ask whether new images still look like what a model knows, and whether to adapt it now.

    For each folder: which known domain it looks most like, how likely such a difference is by chance (early layers,
    features, predictions), the estimated accuracy, and what to do. No labels are read, and nothing is trained or
    written. It needs a model with a profile, as 'cosda source', 'cosda adapt' and 'cosda profile' make it, and about 40
    images in a folder.

    Exit code for a scheduler: 0 there is nothing to do, 4 adapt now to at least one folder, 5 of some folder it cannot
    be told. (2 is a wrong request.)

    Example:  cosda monitor adapted-model photos/today

    Example:  cosda monitor adapted-model photos/* --json > monitor.json || cosda-alarm
    """
    from cosda import api
    from cosda.cli.tables import print_drifts

    opened, machine = loading.load(model), place.machine()
    found = [api.monitor(opened, one, alpha=alpha, machine=machine, watcher=open_watcher(quiet)) for one in images]
    if as_json:
        print_json([one.as_json() for one in found])
    else:
        print_drifts(found)
    answers = {one.adapt for one in found}
    raise typer.Exit(ADAPT if True in answers else UNTOLD if None in answers else 0)
