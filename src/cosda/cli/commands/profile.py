"""cosda profile: show a model what it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import Images, Loading, ModelFolder, Overwrite, Place, Quiet, grouped
from cosda.cli.progress import open_watcher


@grouped
def profile(
    model: ModelFolder,
    images: Images,
    loading: Loading,
    place: Place,
    domain: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of what the model was trained on; default: that of the profile that it has, else of the folder.",
        ),
    ] = None,
    freeze_encoder: Annotated[
        bool, typer.Option("--freeze-encoder", help="For a bank that will be adapted with --freeze-encoder.")
    ] = False,
    labelled: Annotated[
        bool,
        typer.Option(
            "--labelled",
            help="Read the labels (class folders) too, and learn how far the model's probabilities can be believed: "
            "estimated accuracies need this.",
        ),
    ] = False,
    trained_on: Annotated[
        bool,
        typer.Option(
            "--trained-on",
            help="The model was trained on these very images. It is more confident of them than of new ones, so "
            "'cosda monitor' will compare only what its first layers see.",
        ),
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write the model with its profile here, and leave MODEL as it is."),
    ] = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Show a model what it was trained on.

    A domain bank sends an image to the expert of the domain that it looks like, so it must know what the images looked
    like that the model itself was trained on. 'cosda source' stores that with the model. For a model from elsewhere,
    give any images of the same kind, without labels, before or after 'cosda adapt --carry bank'. What is stored are
    averages over all images, and no image.

    Example:  cosda profile my-model photos/office
    """
    from cosda import api
    from cosda.models.folder import check_free
    from cosda.units import amount

    check_free(to or model, overwrite or to is None)
    given = loading.load(model)
    made = api.profile(
        given,
        images,
        domain=domain,
        freeze_encoder=freeze_encoder,
        labelled=labelled,
        trained_on=trained_on,
        machine=place.machine(),
        watcher=open_watcher(quiet),
    )
    made.save(to or model, overwrite=overwrite or to is None, link=to is None)
    old, new = given.network.base.profile, made.network.base.profile
    assert new is not None
    size = amount(len(new.to_bytes()))
    print(f"profile of '{new.name}' made of {new.images} images, {size}; written into {to or model}")
    if new.calibration is not None:
        print(f"accuracy on them: {new.calibration.accuracy:.1%}; estimates of accuracy rest on these images")
    if old is not None:
        stood = f"of {old.images} images" if old.images else "of BatchNorm statistics"
        print(f"it takes the place of one {stood}")
