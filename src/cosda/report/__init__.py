"""From run folders to a report: a pure function, same folders, same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cosda.errors import CosdaError
from cosda.files import write_atomically
from cosda.records.run import Run
from cosda.report.formats import FORMATS
from cosda.report.tables.contents import contents

__all__ = ["render_report", "write_report"]


def render_report(runs: Sequence[Run], format: str, select: str | None = None) -> str:
    """The report on runs as text.

    Args:
        runs: runs of any benchmarks, finished or not; what cannot be compared stands apart.
        format: a name in `cosda.report.formats.FORMATS`: ``html``, ``md``, ``csv`` or ``tex``.
        select: show single-target runs as this selection rule would have chosen; None: each under its own rule.

    Raises:
        CosdaError: there are no runs, or there is no such format or rule.
    """
    if not runs:
        raise CosdaError("there are no runs to report on. 'cosda run' makes them.")
    return FORMATS.find(format).render(contents(runs, select))


def write_report(runs: Sequence[Run], output: Path | str, format: str | None = None, select: str | None = None) -> None:
    """Write the report on runs, so that a reader of ``output`` sees the old file or the whole new one.

    Args:
        runs: runs of any benchmarks, finished or not.
        output: the file; its folder is made.
        format: a name in `cosda.report.formats.FORMATS`: ``html``, ``md``, ``csv`` or ``tex``; by default the ending.
        select: show single-target runs as this selection rule would have chosen; None: each under its own rule.

    Raises:
        CosdaError: there are no runs, there is no such format or rule, or the file cannot be written.

    Example:
        >>> write_report(find_runs("runs"), "report.html")
    """
    write_atomically(output, render_report(runs, format or Path(output).suffix.lstrip("."), select))
