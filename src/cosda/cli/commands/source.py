"""cosda source: train a model on a labelled domain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import (
    Data,
    Following,
    NewNetwork,
    Out,
    Overwrite,
    Place,
    Quiet,
    Seed,
    Settings,
    changes_of,
    grouped,
)
from cosda.cli.progress import open_watcher


@grouped
def source(
    data: Data,
    domain: Annotated[str, typer.Option("--domain", help="The labelled domain to train on.")],
    model: Annotated[Path, typer.Option("--model", "-m", help="Where to write the model folder.")],
    network: NewNetwork,
    settings: Settings,
    place: Place,
    following: Following,
    epochs: Annotated[int | None, typer.Option(min=0, help="Epochs (source.epochs).")] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    out: Out = Path("runs"),
    quiet: Quiet = False,
) -> None:
    """Train a source model on one labelled domain.

    Example:  cosda source digits --domain print --model print-model
    """
    from cosda import api
    from cosda.cli.tables import print_source
    from cosda.config.request import Change, Request
    from cosda.models.folder import check_free

    check_free(model, overwrite)
    named = () if epochs is None else (Change("source.epochs", epochs, f"--epochs {epochs}"),)
    request = Request("source", (domain,), (*named, *changes_of(network, settings)), seed=seed)
    result = api.train_request(data, request, out, place.machine(following), open_watcher(quiet))
    result.model.save(model, overwrite=overwrite)
    print_source(result.run, domain, model)
