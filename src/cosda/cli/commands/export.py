"""cosda export: a file that runs without cosda."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.cli.options import KnownDomain, Loading, ModelFolder, Quiet, grouped
from cosda.cli.progress import open_watcher


@grouped
def export(
    model: ModelFolder,
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="The file to write; with --experts separate a folder.")
    ],
    loading: Loading,
    format: Annotated[
        str | None,
        typer.Option(
            "--format", "-f", metavar="NAME", help="onnx, torch-export or torchscript. Default: by the ending."
        ),
    ] = None,
    domain: KnownDomain = None,
    experts: Annotated[
        str,
        typer.Option(
            metavar="FORM",
            help="Of a domain bank: together, one file that routes each image; or separate, a folder with the router, "
            "a file for each expert, and manifest.json.",
        ),
    ] = "together",
    verify: Annotated[
        Path | None,
        typer.Option(
            metavar="IMAGES",
            help="Images on which the exported model is tried. Default: some of cosda's own, and noise.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what was exported there before.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write a model as a file that runs without cosda.

    The endings are .onnx, .pt2 (torch.export) and .pt (TorchScript). The file takes batches of any size, of pixels as
    image libraries give them, and gives probabilities and logits. Class names, and how to resize an image, stand in
    its metadata. A domain bank routes each image within the file.

    The file is run on images first. If a class differs from the model's, or a probability by more than 0.0001, it is
    not written.

    Example:  cosda export adapted-model --to model.onnx --verify photos/today

    Example:  cosda export adapted-model --to experts --experts separate
    """
    from cosda import api
    from cosda.units import amount

    made = api.export(
        loading.load(model),
        to,
        format=format,
        domain=domain,
        experts=experts,
        verify=verify,
        overwrite=overwrite,
        watcher=open_watcher(quiet),
    )
    print(f"{made.path}: {made.format}, {amount(made.bytes)}")
    print(f"run on {made.images} images: probabilities differ by at most {made.difference:.1g}, no class differs")
    if made.untried:
        print(f"not tried: the expert of {', '.join(made.untried)}, which none of them reached; --verify names others")
