"""cosda import: make a model folder of a trained classifier from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import Overwrite, grouped
from cosda.errors import CosdaError


@dataclass
class Seen:
    """How images become the network's input, where the model's own settings are to be replaced."""

    size: Annotated[int | None, typer.Option(min=8, help="Pixels of each side of the network's input.")] = None
    mean: Annotated[
        str | None, typer.Option(metavar="R,G,B", help="Means of the pixels from 0 to 1, or one for all channels.")
    ] = None
    std: Annotated[str | None, typer.Option(metavar="R,G,B", help="Their deviations.")] = None
    profile: Annotated[
        str | None,
        typer.Option(help="cosda: the whole image is seen; shot: its centre, 7/8 of each side, as 224 of 256."),
    ] = None
    no_flip: Annotated[
        bool, typer.Option("--no-flip", help="Left and right matter, as in digits: no mirrored images in training.")
    ] = False


@grouped
def import_(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="timm/NAME, torchvision/NAME or hf/NAME with --weights; a file of weights (.pth, .pt, .safetensors) "
            "with --build; or a graph, .onnx or .pt2.",
        ),
    ],
    to: Annotated[Path, typer.Option("--to", help="Where to write the model folder.")],
    seen: Seen,
    weights: Annotated[
        str | None,
        typer.Option(
            help="The whole classifier's weights: a file, or 'pretrained' for those that the library fetches."
        ),
    ] = None,
    build: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION", help="For a file of weights: the function that makes the network, which is run."
        ),
    ] = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Names of the classes in the order of the outputs: one a line, or JSON (a list, or number to name). "
            "Default: those that the library knows.",
        ),
    ] = None,
    classifier: Annotated[
        str | None, typer.Option(metavar="PATH", help="The last layer, such as 'head.fc'; default: it is looked for.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Make a model of a trained classifier from elsewhere.

    The model is tried on two images, and then works with all other commands. A graph (ONNX, torch.export) predicts,
    and is evaluated, profiled and monitored; it cannot be adapted. Files are never unpickled. The function that --build
    names is run; the model remembers its name, and it is run again only where --build or $COSDA_BUILD says so.

    Example:  cosda import timm/resnet50 --weights trained.pth --classes classes.txt --to my-model

    Example:  cosda import trained.pth --build mymodels:make --classes classes.txt --to my-model

    Example:  cosda import exported.onnx --classes classes.txt --size 224 --to my-model
    """
    from cosda.cli.tables import print_imported
    from cosda.models.contents import read_contents
    from cosda.models.folder import check_free
    from cosda.models.importing import import_model
    from cosda.models.libraries import find_library

    check_free(to, overwrite)
    made = import_model(
        model,
        weights,
        build=build,
        classes=classes,
        classifier=classifier,
        size=seen.size,
        mean=_channels("--mean", seen.mean),
        std=_channels("--std", seen.std),
        profile=seen.profile,  # type: ignore[arg-type]  # which Preprocessing checks
        flip=False if seen.no_flip else None,
    )
    made.save(to, overwrite=overwrite)
    told = {"--size": seen.size, "--mean": seen.mean, "--std": seen.std}
    print_imported(read_contents(to), [] if find_library(model) else [name for name in told if told[name] is None])


def _channels(option: str, text: str | None) -> tuple[float, ...] | None:
    """Three numbers, of which one may stand for all."""
    if text is None:
        return None
    try:
        values = tuple(float(word) for word in text.split(","))
    except ValueError:
        values = ()
    if len(values) not in (1, 3):
        raise CosdaError(f"{option} {text}: write one number or three, such as 0.485,0.456,0.406.")
    return values * (3 // len(values))
