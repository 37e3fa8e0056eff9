"""The program itself; its commands are handed to it (`cosda.__main__`)."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext, redirect_stdout, suppress
from typing import Annotated

import typer

from cosda import __version__
from cosda.distributed import env
from cosda.errors import CosdaError, in_words, refusal
from cosda.files import as_text, writing
from cosda.run.memory import keep_freed_memory


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"cosda {__version__}")
        raise typer.Exit


TOGETHER = ("source", "run", "adapt")  # commands that several processes can do together


def options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options of the program itself."""
    command = context.invoked_subcommand
    if env.place().world > 1 and command not in TOGETHER:
        raise CosdaError(
            f"torchrun is for the commands {', '.join(TOGETHER)}. Start 'cosda {command}' without it: it works in one "
            "process, or starts more by itself."
        )


def build_app(commands: Iterable[Callable[..., None]]) -> typer.Typer:
    """The program with these commands, in this order."""
    app = typer.Typer(
        name="cosda",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: importing rich's would triple the time that it takes
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Continual source-free domain adaptation: adapt a trained classifier to one new domain after another, "
        "without the old images, without labels, without a domain ID, and without forgetting.\n\n"
        "Start with: cosda demo",
    )
    app.callback(help=app.info.help)(options)
    for command in commands:
        app.command(command.__name__.rstrip("_"))(command)  # a word that Python keeps for itself has a _
    return app


INTERRUPTED, ENDED = (128 + number for number in (signal.SIGINT, signal.SIGTERM))
LONGEST = 3_000  # letters of a message; what to do stands at its end
GRACE = 30.0  # seconds in which torchrun ends this process, if rank 0 has failed too


def run_program(app: typer.Typer) -> None:
    """Run the command line: code 2 for a wrong request or what the system refuses, 130 for Ctrl-C, 143 for `kill`.

    None of these has a traceback.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal of few letters shows the others as escapes
        sys.stdout.reconfigure(errors="backslashreplace")
    rank = env.place().rank
    _hear_once()
    keep_freed_memory()
    try:
        with redirect_stdout(io.StringIO()) if rank else nullcontext():  # results are printed once
            _act(app)
    except SystemExit as end:
        if end.code in (INTERRUPTED, ENDED) and not rank:  # typer makes the first of Ctrl-C, and says nothing
            _say("interrupted; the same command goes on where the last epoch ended.")
        raise
    except Exception as error:
        refused = refusal(error)
        if refused is None and not isinstance(error, CosdaError):
            raise
        if rank:  # where all processes fail alike, rank 0 alone shall say so
            time.sleep(GRACE)
        told = str(error) if refused is None else in_words(refused)
        _say(f"rank {rank}: {told}" if rank else told)
        sys.exit(2)


def _say(text: str) -> None:
    """Print one line, whatever names and values of data it shows."""
    line = as_text(" ".join(text.splitlines()))
    shown = line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    with suppress(OSError):  # the disk may be full on which standard error goes
        print(f"cosda: {shown}", file=sys.stderr)


def _hear_once() -> None:
    """Let Ctrl-C and `kill` end the program in order: workers and temporary files go first.

    A second one does not disturb that, because a shell, a terminal and torchrun may each send one. A third ends the
    program at once.
    """
    heard = 0

    def hear(number: int, _: object) -> None:
        nonlocal heard
        heard += 1
        if heard == 1:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(ENDED)
        if heard > 2:
            os._exit(128 + number)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background it may be switched off
        signal.signal(signal.SIGINT, hear)
    if env.place().world == 1:  # several processes may wait for each other, so torchrun must end them at once
        signal.signal(signal.SIGTERM, hear)


def _act(app: typer.Typer) -> None:
    """Do the command; several processes that did it together part when all have come to its end."""
    try:
        app()
    except SystemExit as end:
        _flush()
        if not end.code and env.place().world > 1:
            from cosda.distributed.collectives import leave

            leave()
        raise


def _flush() -> None:
    """Have all that was printed where it goes; otherwise Python would try at its very end, and complain."""
    try:
        with writing("the standard output"):
            sys.stdout.flush()
    except BaseException as error:
        with suppress(OSError, ValueError):  # what is left shall go nowhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error.__cause__, BrokenPipeError):  # such as `| head`, which has seen enough
            sys.exit(1)
        raise
