"""Options that several commands share, in groups: a command takes a group as one argument (`grouped`)."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from cosda.carry import CARRY_RULES
from cosda.data.registry import what_belongs
from cosda.records.writers import WRITERS
from cosda.validators import VALIDATORS

if TYPE_CHECKING:
    from cosda.config.request import Change, Request
    from cosda.models.artifact import Model
    from cosda.run.machine import Machine

Data = Annotated[str, typer.Argument(metavar="DATA", help=f"It is {what_belongs()}.")]
Images = Annotated[
    Path,
    typer.Argument(
        metavar="IMAGES",
        help="A folder of images, a CSV or parquet file, an image list, an .npz file, a data set that datasets has "
        "saved, or hf:ORG/NAME; DATA#DOMAIN for one of several domains.",
    ),
]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")]
Method = Annotated[str, typer.Option(help="The method; 'cosda methods' lists them.")]
Variant = Annotated[str | None, typer.Option(help="Variant of the method, such as 'paper' or 'authors'.")]
Ablate = Annotated[str | None, typer.Option("--ablate", help="Leave a part of the method out, such as 'no-mi'.")]
KnownDomain = Annotated[
    str | None,
    typer.Option(
        "--domain",
        metavar="NAME",
        help="The domain that the images are from: a domain bank then answers by that domain's expert alone and does "
        "not route. Only models with masks (gsfda) must be told.",
    ),
]
ExpertsInMemory = Annotated[
    int | None,
    typer.Option(
        "--experts-in-memory",
        min=1,
        metavar="N",
        help="Experts of a domain bank that are kept ready; fewer take less memory and more time. Default: 8.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random numbers.")]
Select = Annotated[
    str,
    typer.Option(metavar="RULE", help=f"Which epoch to hand on: last, {', '.join(VALIDATORS)}; or oracle, by labels."),
]
CARRY_HELP = f"What a stage hands on. {CARRY_RULES.described()}."
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of run folders.")]
FollowLinks = Annotated[
    bool, typer.Option("--follow-links", help="Read what links and lists name outside of the data folder.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a model folder that is there already.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; only images that were skipped are named.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@dataclass
class Loading:
    """How a model folder is opened."""

    build: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            envvar="COSDA_BUILD",
            show_envvar=False,
            help="For a model of your own code: the function that builds it, which is run. Default: $COSDA_BUILD.",
        ),
    ] = None

    def load(self, path: Path) -> Model:
        """The model in a folder."""
        from cosda.models.artifact import load

        return load(path, build=self.build)


@dataclass
class Settings:
    """Options that change settings of every training."""

    precision: Annotated[
        str | None,
        typer.Option(help="32, bf16 or 16 bits (network.precision); a device that lacks them computes in 32."),
    ] = None
    freeze_encoder: Annotated[
        bool, typer.Option("--freeze-encoder", help="Compute features once and train the head alone.")
    ] = False
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change any setting, such as temperature=0.1 or source.lr=0.01."
        ),
    ] = None


@dataclass
class NewNetwork:
    """Options of a network that is yet to be trained."""

    encoder: Annotated[
        str | None, typer.Option(help="Encoder, such as lite0 or resnet50; 'cosda methods --encoders' lists them.")
    ] = None
    weights: Annotated[str | None, typer.Option(help="File with the encoder's weights, or 'pretrained'.")] = None
    size: Annotated[int | None, typer.Option(min=8, help="Pixels of each side of the network's input (data.size).")] = (
        None
    )


@dataclass
class Training:
    """How long and on what an adaptation trains."""

    epochs: Annotated[
        int | None, typer.Option(min=0, help="Epochs for each target (adapt.epochs); 'source' and 'bn' keep their own.")
    ] = None
    batch_size: Annotated[int | None, typer.Option(min=1, help="Images in a batch (adapt.batch_size).")] = None
    edgemix: Annotated[
        float | None,
        typer.Option("--edgemix", min=0, max=1, help="Mix edges into training images; the image's share, such as 0.9."),
    ] = None


@dataclass
class Adaptation:
    """What of a method is wanted, and what becomes of its epochs."""

    variant: Variant = None
    ablate: Ablate = None
    seed: Seed = 0
    select: Select = "last"
    carry: Annotated[str | None, typer.Option(metavar="RULE", help=CARRY_HELP)] = None


@dataclass
class Place:
    """Where to compute."""

    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto"
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads; default: as many as there are cores.")] = None
    cache: Annotated[
        Path | None, typer.Option(help="Folder of packed images; default $COSDA_CACHE or ~/.cache/cosda.")
    ] = None
    no_pack: Annotated[bool, typer.Option("--no-pack", help="Read the original images each time.")] = False
    strict: Annotated[bool, typer.Option("--strict", help="Stop at an image that cannot be read.")] = False
    follow_links: FollowLinks = False

    def machine(self, following: Following | None = None) -> Machine:
        """The machine that the options describe."""
        from cosda.run.machine import Machine

        names = [name.strip() for name in following.log.split(",") if name.strip()] if following else []
        compiled = following.compile if following else False
        return Machine(
            self.device,
            self.threads,
            self.cache,
            not self.no_pack,
            self.strict,
            self.follow_links,
            log=tuple(names),
            compile=compiled,
        )


@dataclass
class Following:
    """What may go along with a training."""

    compile: Annotated[
        bool,
        typer.Option("--compile", help="Compile the network (torch.compile): a minute at first, then faster passes."),
    ] = False
    log: Annotated[
        str,
        typer.Option("--log", metavar="NAMES", help=f"Who follows the records, with commas: {WRITERS.described()}."),
    ] = ""


def changes_of(*groups: object) -> tuple[Change, ...]:
    """The options of some groups that name a setting, by their own names; ``--set`` comes last and wins."""
    from cosda.config.request import NAMED, Change, parse_changes

    given = {key: value for group in groups for key, value in vars(group).items()}
    named = [
        Change(NAMED[name], value, f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}"))
        for name, value in given.items()
        if name in NAMED and value is not None and value is not False
    ]
    return (*named, *parse_changes(given.get("set_") or ()))


def request_of(
    method: str,
    asked: Adaptation,
    *groups: object,
    domains: tuple[str, ...] | None = None,
    model: Model | None = None,
) -> Request:
    """What the options of a command ask for."""
    from cosda.config.request import Request

    changes = changes_of(asked, *groups)
    return Request(method, domains, changes, asked.variant, asked.ablate, asked.seed, asked.select, model)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: each field of a dataclass among its arguments becomes an option.

    Help shows the command's own options first.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    signature = inspect.signature(command).parameters
    own = [parameter.replace(annotation=hints[name]) for name, parameter in signature.items() if name not in groups]
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hinted[field.name]
        )
        for group in groups.values()
        for hinted in [get_type_hints(group, include_extras=True)]
        for field in dataclasses.fields(group)
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    options = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *shared)]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in options}
    return run
