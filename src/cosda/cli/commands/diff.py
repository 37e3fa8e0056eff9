"""cosda diff: which images change class between two models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import AsJson, Images, KnownDomain, Loading, Place, Quiet, grouped
from cosda.cli.progress import open_watcher
from cosda.cli.tables import print_json

ON_TERMINAL, ON_PAGE = 20, 200


@grouped
def diff(
    model_a: Annotated[Path, typer.Argument(metavar="A", help="A model folder, such as the one in use.")],
    model_b: Annotated[Path, typer.Argument(metavar="B", help="Another one, such as the adapted one.")],
    images: Images,
    loading: Loading,
    place: Place,
    domain: KnownDomain = None,
    most: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help=f"Images to show. Default: {ON_TERMINAL} on the terminal, {ON_PAGE} on a page. JSON and CSV have all.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write them to FILE.csv, or to FILE.html: one page with small pictures, which works offline.",
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show which images change class between two models.

    How many change from which class to which; then the images, first those where both models are most confident.
    Folder names and labels of the images mean nothing here and are not read.

    Example:  cosda diff office-model adapted photos/warehouse

    Example:  cosda diff office-model adapted photos/warehouse --output changes.html
    """
    from cosda import api
    from cosda.cli.tables import print_diff
    from cosda.report.diff.files import check_output, write_diff

    on_page = ON_PAGE if most is None else most
    pictures = on_page if output is not None and check_output(output) == "html" else 0
    found = api.diff(
        loading.load(model_a),
        loading.load(model_b),
        images,
        domain=domain,
        pictures=pictures,
        machine=place.machine(),
        watcher=open_watcher(quiet),
    )
    found = replace(found, a=str(model_a), b=str(model_b))
    if output is not None:
        write_diff(found, output, on_page)
    if as_json:
        print_json(found.as_json())
        return
    print_diff(found, ON_TERMINAL if most is None else most)
    if output is not None:
        print(f"written to {output}")
