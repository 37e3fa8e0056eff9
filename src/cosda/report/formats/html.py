"""The report as one self-contained page."""

from __future__ import annotations

from cosda.report.formats.base import Format
from cosda.report.tables.contents import Contents


def render(contents: Contents) -> str:
    """The page; equal run folders give equal bytes."""
    # Loaded when asked for: numpy, jinja2, plotly and scikit-learn take a while, and other formats need none of them.
    from cosda.report.formats.page import page

    return page(contents)


HTML = Format("one page with figures, which works offline", render)
