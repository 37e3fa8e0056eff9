"""Texts and tables as GitHub-flavoured Markdown. No torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence


def plain(text: str) -> str:
    """Text that Markdown shows as it is, within one line."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|\[\]])", r"\\\1", text)


def code(text: str) -> str:
    """Text as code, within one line."""
    return "`" + " ".join(text.split()).replace("`", "'") + "`"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], names: int) -> Iterator[str]:
    """The lines of a table whose cells are Markdown; so many columns at the left hold names, the others numbers."""
    yield _line(header)
    yield _line([*(["---"] * names), *(["--:"] * (len(header) - names))])
    yield from map(_line, rows)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
