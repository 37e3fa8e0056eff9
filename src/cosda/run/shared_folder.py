"""The run folder of several processes: rank 0 writes it, the others follow in silence."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from cosda.distributed import collectives
from cosda.errors import CosdaError
from cosda.files import Json
from cosda.records.folder import RunFolder


def open_folder(path: Path, config: Json, wait: float = 0) -> RunFolder:
    """The folder as this process may use it."""
    if collectives.world() == 1:
        return RunFolder(path, config, wait)
    return MainFolder(path, config, wait) if collectives.is_main() else SilentFolder(path, config)


class MainFolder(RunFolder):
    """Rank 0's: it is opened and left by all ranks together."""

    def __enter__(self) -> RunFolder:
        super().__enter__()
        collectives.from_first(self.finished)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if kind is None:  # the others may read what is now complete
            collectives.barrier()


class SilentFolder(RunFolder):
    """That of all other ranks: they are told what rank 0 found, and write nothing."""

    def __enter__(self) -> RunFolder:
        self._finished = collectives.from_first(False)
        if not (self.path / "config.json").exists():
            raise CosdaError(
                f"this process does not see {self.path}, which rank 0 has just opened. All processes must work on one "
                "file system: give an --out that they share."
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            collectives.barrier()

    @property
    def finished(self) -> bool:
        """What rank 0 found when it opened the folder."""
        return self._finished

    def rewind(self, length: int) -> None:
        """Nothing to forget."""

    def secure(self) -> int:
        """Rank 0 does that."""
        return self.length()

    def settle(self) -> None:
        """Nobody follows."""

    def finish(self, **facts: Any) -> None:
        """Rank 0 closes the run."""

    def _append(self, name: str, facts: Json) -> None:
        """Rank 0 appends."""
