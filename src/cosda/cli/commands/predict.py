"""cosda predict: classify images."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import ExpertsInMemory, Images, KnownDomain, Loading, ModelFolder, Place, Quiet, grouped
from cosda.cli.progress import open_watcher


@grouped
def predict(
    model: ModelFolder,
    images: Images,
    loading: Loading,
    place: Place,
    domain: KnownDomain = None,
    format: Annotated[str, typer.Option("--format", "-f", help="csv or json.")] = "csv",
    output: Annotated[Path | None, typer.Option("--output", help="File to write; default: standard output.")] = None,
    top: Annotated[int, typer.Option(min=1, metavar="K", help="The K most probable classes of each image.")] = 1,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="The probability of every class as well.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Of a domain bank also the domain that each image is taken for, its posterior, and whether the image "
            "resembles no known domain; in JSON the posteriors of all domains.",
        ),
    ] = False,
    experts_in_memory: ExpertsInMemory = None,
    quiet: Quiet = False,
) -> None:
    """Classify images; no labels, no domain ID.

    Writes the class of every image and its probability, in the order of the input. An image that cannot be read has a
    line without a class that says why. A domain bank finds the expert for each image by itself.

    Example:  cosda predict adapted-model photos/today --output classes.csv

    Example:  cosda predict adapted-model photos/today --explain
    """
    from cosda import api
    from cosda.files import check_file, write_atomically
    from cosda.run.predictions import check_format, write_predictions

    check_format(format)
    if output is not None:
        check_file(output)
    found = api.predict(
        loading.load(model),
        images,
        domain=domain,
        explain=explain,
        experts_in_memory=experts_in_memory,
        machine=place.machine(),
        watcher=open_watcher(quiet),
    )
    text = write_predictions(found, format, top, probabilities)
    if output is None:
        sys.stdout.write(text)
    else:
        write_atomically(output, text)
