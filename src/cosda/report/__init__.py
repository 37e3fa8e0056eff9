"""From run folders to a report: a pure function, same folders, same bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cosda.errors import CosdaError, nearest
from cosda.records.run import Run

FORMATS = ("html", "md", "csv", "tex")

__all__ = ["FORMATS", "render_report", "write_report"]


def render_report(runs: Sequence[Run], format: str, select: str | None = None) -> str:
    """The report on ``runs`` as text in one of `FORMATS`; under another selection rule, if ``select`` names one."""
    if not runs:
        raise CosdaError("there are no runs to report on. 'cosda run' makes them.")
    if format not in FORMATS:
        raise CosdaError(f"unknown report format '{format}': use {', '.join(FORMATS)}.{nearest(format, FORMATS)}")
    # Imported when asked for: plotly, jinja2 and scikit-learn take a while, and the others need none of them.
    if format == "html":
        from cosda.report import html

        return html.render(runs, select) if select else html.render(runs)
    from cosda.report.contents import contents

    book = contents(runs, select)
    if format == "md":
        from cosda.report.text import markdown

        return markdown(book)
    if format == "tex":
        from cosda.report.latex import latex

        return latex(book)
    from cosda.report.values import comma_separated

    return comma_separated(book)


def write_report(runs: Sequence[Run], output: Path, format: str, select: str | None = None) -> None:
    """Write the report on ``runs`` so that a reader of ``output`` sees the old file or the whole new one."""
    content = render_report(runs, format, select)
    temporary = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(content, encoding="utf-8", newline="\n")
        os.replace(temporary, output)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CosdaError(f"cannot write the report to {output}: {error.strerror or error}.") from None
