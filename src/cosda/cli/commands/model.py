"""cosda model: what a model folder holds, and how an expert is taken out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import AsJson, Loading, ModelFolder, Overwrite, grouped
from cosda.cli.tables import print_json


@grouped
def model(
    model: ModelFolder,
    loading: Loading,
    drop: Annotated[
        str | None, typer.Option(metavar="DOMAIN", help="Take the expert of this domain out of a domain bank.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write what is left here, and leave MODEL as it is."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Show what a model holds, or take an expert out.

    Classes, network and input; of each domain its expert and its profile, their bytes, and what they were made by and
    when; then the lineage. With --drop the folder is replaced, in one step, by one without that domain's expert. The
    other experts answer as before, to the bit; a bank without its last expert is the plain model again.

    Example:  cosda model adapted-model

    Example:  cosda model adapted-model --drop new-site
    """
    from cosda.cli.tables import print_model
    from cosda.errors import CosdaError
    from cosda.models.contents import read_contents
    from cosda.models.folder import check_free

    if drop is None and to is not None:
        raise CosdaError("--to says where the model goes that --drop DOMAIN leaves: give both, or neither.")
    if drop is not None:
        check_free(to or model, overwrite or to is None)
        # Weights that stay as they are need not be written again.
        loading.load(model).without(drop).save(to or model, overwrite=overwrite or to is None, link=to is None)
    contents = read_contents(to or model)
    if as_json:
        print_json(contents.as_json())
        return
    if drop is not None:
        print(f"the expert of '{drop}' is taken out; what is left:")
    print_model(contents)
