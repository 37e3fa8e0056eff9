"""From run folders to a report: a pure function, same folders, same bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cosda.errors import CosdaError, nearest
from cosda.records import Run

FORMATS = ("html", "md", "csv")

__all__ = ["FORMATS", "render_report", "write_report"]


def render_report(runs: Sequence[Run], format: str) -> str:
    """The report on ``runs`` as text in one of `FORMATS`."""
    if not runs:
        raise CosdaError("there are no runs to report on. 'cosda run' makes them.")
    # Imported when asked for: plotly, jinja2 and scikit-learn take a while, and Markdown needs none of them.
    if format == "html":
        from cosda.report.html import render

        return render(runs)
    from cosda.report import text

    if format == "md":
        return text.markdown(runs)
    if format == "csv":
        return text.comma_separated(runs)
    raise CosdaError(f"unknown report format '{format}': use {', '.join(FORMATS)}.{nearest(format, FORMATS)}")


def write_report(runs: Sequence[Run], output: Path, format: str) -> None:
    """Write the report on ``runs`` so that a reader of ``output`` sees the old file or the whole new one."""
    content = render_report(runs, format)
    temporary = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(content, encoding="utf-8", newline="\n")
        os.replace(temporary, output)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CosdaError(f"cannot write the report to {output}: {error.strerror or error}.") from None
