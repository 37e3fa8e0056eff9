"""cosda run: adapt along a chain of domains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import (
    Adaptation,
    AsJson,
    Data,
    Following,
    Loading,
    Method,
    NewNetwork,
    Out,
    Place,
    Quiet,
    Settings,
    Training,
    grouped,
    request_of,
)
from cosda.cli.progress import open_watcher
from cosda.cli.tables import print_json


@grouped
def run(
    data: Data,
    adaptation: Adaptation,
    network: NewNetwork,
    loading: Loading,
    training: Training,
    settings: Settings,
    place: Place,
    following: Following,
    method: Method = "cosda",
    domains: Annotated[str | None, typer.Option(help="The chain, source first: a,b,c. Default: all in order.")] = None,
    model: Annotated[Path | None, typer.Option(help="Start from this model instead of training the source.")] = None,
    out: Out = Path("runs"),
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Adapt along a chain of domains; measure all after each.

    Goes on where it was interrupted; a finished run is only shown. With --carry bank each target leaves an expert
    beside the source model, which stays as it is; what is measured finds the domain of each image by itself.

    Example:  cosda run digits --domains print,outline,colour,hand --method cosda

    Example:  cosda run digits --domains print,outline,colour,hand --method aad --carry bank
    """
    from cosda import api
    from cosda.cli.tables import print_run

    chain = tuple(name.strip() for name in domains.split(",")) if domains else None
    given = loading.load(model) if model else None
    request = request_of(method, adaptation, network, training, settings, domains=chain, model=given)
    finished = api.run_request(data, request, out, place.machine(following), open_watcher(quiet))
    if as_json:
        print_json({"run": str(finished.path), "label": finished.label, **finished.summary()})
    else:
        print_run(finished)
