"""Log writers: they follow the records of a run while it goes on, if asked for. No torch.

A run's records become *rows* of numbers, one for each finished epoch and one for each model handed on. A writer
takes the rows that it does not have yet, and only those that lie behind a checkpoint: they will never be done
again, so a run that was killed goes on without a gap and without a step that is written twice. A writer may be asked
for at any time; it then begins with the rows of the past. It changes no record and no number, and one that
fails is reported once and left out: the run goes on. One writer, one file, and one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from types import TracebackType
from typing import Any

from cosda.distributed import env
from cosda.errors import CosdaError
from cosda.records.folder import RunFolder
from cosda.records.run import read_run
from cosda.records.writers.base import Row, Writer, rows
from cosda.records.writers.tensorboard import TensorBoard
from cosda.records.writers.wandb import WeightsAndBiases
from cosda.registry import Registry
from cosda.watch import Watcher

__all__ = ["WRITERS", "Log", "Row", "Writer", "check_writers", "rows"]

WRITERS: Registry[type[Writer]] = Registry(
    "log writer",
    {
        "tensorboard": TensorBoard,
        "wandb": WeightsAndBiases,
    },
    group="cosda.writers",
    of=Writer,
)


def check_writers(names: Sequence[str]) -> None:
    """An error for a writer that does not exist or is not installed, before anything begins."""
    for name in names:
        library = WRITERS.find(name).library
        if library is not None and find_spec(library) is None:
            raise CosdaError(
                f"{library} is not installed; 'pip install cosda[{library}]' installs it. Or leave out --log."
            )


class Log:
    """Lets writers follow a run folder within a ``with`` block."""

    def __init__(self, folder: RunFolder, names: Sequence[str], watcher: Watcher) -> None:
        self.folder = folder
        self.watcher = watcher
        self.names = names
        self.writers: dict[str, Writer] = {}

    def __enter__(self) -> Log:
        for name in dict.fromkeys(self.names if env.place().rank == 0 else ()):
            self._attempt(name, self._open, name)
        if self.writers:
            self.folder.followers.append(self._send)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, writer in list(self.writers.items()):
            self._attempt(name, writer.close, self.folder.finished)

    def _send(self) -> None:
        for name, writer in list(self.writers.items()):
            self._attempt(name, lambda writer: writer.send(rows(read_run(self.folder.path))), writer)

    def _open(self, name: str) -> None:
        self.writers[name] = WRITERS[name](self.folder)
        self.watcher.note(f"{name}: {self.writers[name].place}")

    def _attempt(self, name: str, act: Callable[[Any], None], value: Any) -> None:
        """Do it; a writer that fails, whatever the reason, is told of once and asked for nothing more."""
        try:
            act(value)
        except Exception as error:
            self.writers.pop(name, None)
            reason = " ".join(str(error).split()) or type(error).__name__
            self.watcher.note(
                f"{name} failed for {self.folder.path.name} and is left out from here on; the run goes on, "
                f"and its records are whole: {reason}"
            )
