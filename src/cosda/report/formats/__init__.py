"""All formats of a report by the ending of its file."""

from __future__ import annotations

from cosda.registry import Registry
from cosda.report.formats.base import Format
from cosda.report.formats.csv import CSV
from cosda.report.formats.html import HTML
from cosda.report.formats.latex import LATEX
from cosda.report.formats.markdown import MARKDOWN

__all__ = ["FORMATS", "Format"]

FORMATS: Registry[Format] = Registry(
    "report format",
    {
        "html": HTML,
        "md": MARKDOWN,
        "csv": CSV,
        "tex": LATEX,
    },
    group="cosda.formats",
    of=Format,
)
