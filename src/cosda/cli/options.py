"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosda.data.registry import what_belongs

Data = Annotated[str, typer.Argument(metavar="DATA", help=f"It is {what_belongs()}.")]
Images = Annotated[
    Path, typer.Argument(metavar="IMAGES", help="A folder of images, a CSV file or image list, or an .npz file.")
]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")]
Method = Annotated[str, typer.Option(help="The method; 'cosda methods' lists them.")]
Variant = Annotated[str | None, typer.Option(help="Variant of the method, such as 'paper' or 'authors'.")]
Ablate = Annotated[str | None, typer.Option("--ablate", help="Leave a part of the method out, such as 'no-mi'.")]
DomainName = Annotated[
    str | None, typer.Option("--domain", help="Name of the images' domain; only models with masks (gsfda) need it.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")]
Select = Annotated[
    str,
    typer.Option(help="Which epoch to hand on: last, information, snd, nuclear_norm, entropy, agreement, oracle."),
]
Carry = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        help="What a stage hands on: last (the adapted model), interpolate=0.5 or along=0.5 (so much of the incoming "
        "model stays), or auto (as much as undoes little of what was learnt).",
    ),
]
Epochs = Annotated[
    int | None, typer.Option(min=0, help="Epochs for each target (adapt.epochs); 'source' and 'bn' keep their own.")
]
Batch = Annotated[int | None, typer.Option(min=1, help="Images in a batch (adapt.batch_size).")]
EdgeMix = Annotated[
    float | None,
    typer.Option("--edgemix", min=0, max=1, help="Mix edges into training images; the image's share, such as 0.9."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change any setting, such as temperature=0.1 or source.lr=0.01."),
]
Encoder = Annotated[str | None, typer.Option(help="Encoder: resnet18|34|50|101, small, lite0, timm/NAME, hf/NAME, …")]
Weights = Annotated[str | None, typer.Option(help="File with the encoder's weights, or 'pretrained'.")]
Size = Annotated[int | None, typer.Option(min=8, help="Pixels of each side of the network's input (data.size).")]
Freeze = Annotated[bool, typer.Option("--freeze-encoder", help="Compute features once and train the head alone.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of run folders.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPU threads; default: as many as there are cores.")]
Compile = Annotated[
    bool, typer.Option("--compile", help="Compile the network (torch.compile): a minute at first, then faster passes.")
]
Precision = Annotated[
    str | None,
    typer.Option(help="32, bf16 or 16 bits (network.precision); a device that lacks them computes in 32 and says so."),
]
Cache = Annotated[Path | None, typer.Option(help="Folder of packed images; default $COSDA_CACHE or ~/.cache/cosda.")]
NoPack = Annotated[bool, typer.Option("--no-pack", help="Read the original images each time.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at an image that cannot be read.")]
Log = Annotated[str, typer.Option("--log", help="Who follows the records: tensorboard, wandb, or both with a comma.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
