"""cosda adapt: adapt a model to new, unlabelled images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import (
    Adaptation,
    Following,
    Images,
    Loading,
    Method,
    ModelFolder,
    Out,
    Overwrite,
    Place,
    Quiet,
    Settings,
    Training,
    grouped,
    request_of,
)
from cosda.cli.progress import open_watcher

REJECTED = 3  # exit code


@grouped
def adapt(
    model: ModelFolder,
    images: Images,
    to: Annotated[Path, typer.Option("--to", help="Where to write the adapted model.")],
    loading: Loading,
    adaptation: Adaptation,
    training: Training,
    settings: Settings,
    place: Place,
    following: Following,
    method: Method = "cosda",
    domain: Annotated[
        str | None,
        typer.Option(
            "--domain",
            metavar="NAME",
            help="Name of the new domain, and so of its expert or mask; default: that of the folder. Only models with "
            "masks (gsfda) must be told.",
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="A few labelled images to measure the model on, before and after. They decide the verdict, and "
            "nothing of the training.",
        ),
    ] = None,
    keep_rejected: Annotated[
        bool, typer.Option("--keep-rejected", help="Write the model to --to even if the verdict rejects it.")
    ] = False,
    overwrite: Overwrite = False,
    out: Out = Path("runs"),
    quiet: Quiet = False,
) -> None:
    """Adapt a model to new, unlabelled images.

    The old model stays as it is. Folder names and labels of the images mean nothing here and are not read.

    Recommended, where earlier domains matter too: --method aad --carry bank (docs/bank.md). What the model knew then
    stays to the bit: the new domain gets a small expert beside it, and each image finds its expert by itself.
    'cosda model' shows the experts, and takes one out again.

    It ends with a verdict, made without labels: accepted, doubtful, or rejected. A rejected model is not written to
    --to, and the exit code is 3. --check FOLDER lets a few labelled images decide instead.

    Example:  cosda adapt office-model photos/warehouse --to adapted --method aad --carry bank
    """
    from cosda import api
    from cosda.cli.tables import print_verdict
    from cosda.models.folder import check_free

    check_free(to, overwrite)
    request = request_of(method, adaptation, training, settings, model=loading.load(model))
    machine, watcher = place.machine(following), open_watcher(quiet)
    result = api.adapt_request(request, images, domain, check, out, machine, watcher)
    assert result.verdict is not None
    refused = result.verdict.verdict == "rejected" and not keep_rejected
    if not refused:
        result.model.save(to, overwrite=overwrite)
    if left_out := sum(len(record["images"]) for record in result.run.of("skipped")):
        print(f"{left_out} images could not be read and were left out")
    print_verdict(result.verdict, result.run.path, model)
    print(f"nothing written to {to}" if refused else f"adapted model written to {to}", end="")
    print(f"; run folder: {result.run.path}")
    if result.verdict.verdict == "rejected":
        raise typer.Exit(REJECTED)
