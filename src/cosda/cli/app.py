"""The program itself: its commands are in the other files of this folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosda import __version__
from cosda.errors import CosdaError

if TYPE_CHECKING:
    from cosda.run.prepare import Machine
    from cosda.run.watch import Watcher

app = typer.Typer(
    name="cosda",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: importing rich's would triple the time that it takes
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Continual source-free domain adaptation: adapt a trained classifier to one new domain after another, "
    "without the old pictures, without labels, without a domain ID, and without forgetting.\n\n"
    "Start with: cosda demo",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"cosda {__version__}")
        raise typer.Exit


@app.callback(help=app.info.help)
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options of the program itself."""


INTERRUPTED = 130


def main() -> None:
    """Run the command line: code 2 for a wrong request, 130 for Ctrl-C, never a traceback for either."""
    try:
        app()
    except CosdaError as error:
        print(f"cosda: {error}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer makes this of Ctrl-C, and says nothing
            print("cosda: interrupted; the same command goes on where the last epoch ended.", file=sys.stderr)
        raise


def open_machine(
    device: str, threads: int | None, cache: Path | None, no_pack: bool, strict: bool, log: str = ""
) -> Machine:
    """The machine that the options describe."""
    from cosda.run.prepare import Machine

    writers = tuple(name.strip() for name in log.split(",") if name.strip())
    return Machine(device, threads, cache, not no_pack, strict, log=writers)


def watcher(quiet: bool) -> Watcher:
    """Who shows the progress."""
    from cosda.terminal import open_watcher

    return open_watcher(quiet)


def setting_changes(
    sets: list[str] | None,
    named: Mapping[str, float | None],
    encoder: str | None,
    weights: str | None,
    size: int | None,
    freeze: bool,
) -> list[str]:
    """The options that are settings, as the texts of --set; --set itself comes last and wins."""
    options: dict[str, Any] = {
        **named,
        "network.encoder": encoder,
        "network.weights": weights,
        "data.size": size,
        "network.freeze_encoder": True if freeze else None,
    }
    given = [f"{key}={json.dumps(value)}" for key, value in options.items() if value is not None]
    return given + (sets or [])


def print_json(value: Any) -> None:
    """A result for programs, on standard output."""
    print(json.dumps(value, indent=1, ensure_ascii=False))
