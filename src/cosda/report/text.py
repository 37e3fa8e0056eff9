"""Reports as Markdown, for readers."""

from __future__ import annotations

import re

from cosda.report import wording
from cosda.report.columns import SUMMARY
from cosda.report.contents import Chapter, Contents
from cosda.report.grids import Grid
from cosda.report.layout import Pieces, lay_out


def markdown(book: Contents) -> str:
    """The tables of all runs, with the rules they were made under, as GitHub-flavoured Markdown."""
    lines = ["# cosda report", ""]
    for grid in book.across:
        lines += [f"## {_plain(wording.caption(grid))}", "", *_grid(grid)]
    for chapter in book.chapters:
        lines += _chapter(chapter)
    if book.left_out:
        lines += ["## Runs that could not be placed", ""]
        lines += [f"- {_code(p.run.path.name)}: {_plain(p.reason)}" for p in book.left_out]
        lines += [""]
    lines += ["## What the numbers mean", "", wording.HOW_TO_READ, ""]
    lines += [f"- **{column.title}**: {column.meaning}" for column in SUMMARY]
    return "\n".join(lines) + "\n"


def _chapter(chapter: Chapter) -> list[str]:
    section = chapter.section
    lines = [f"## {_plain(section.title)} (rule: {_plain(section.select)})", ""]
    lines += [f"- {_plain(fact)}" for fact in wording.facts(section)]
    lines += [f"- Data: {_code(section.fingerprint)}", ""]
    for grid in chapter.grids:
        lines += [f"### {_plain(grid.title)}", "", *_grid(grid)]
    notes = [_plain(note) for note in wording.section_notes(section)]
    if notes:
        lines += ["Empty cells and missing seeds:", "", *(f"- {note}" for note in notes), ""]
    return lines


def _grid(grid: Grid) -> list[str]:
    sheet = lay_out(grid)
    numbers = len(sheet.header) - sheet.names
    lines = [_line([_plain(title) for title in sheet.header])]
    lines += [_line([*("---" for _ in range(sheet.names)), *("--:" for _ in range(numbers))])]
    lines += [_line([_pieces(pieces) for pieces in line]) for line in sheet.lines]
    lines += [""]
    if grid.notes:
        lines += [*(f"- {_plain(note)}" for note in grid.notes), ""]
    return lines


def _pieces(pieces: Pieces) -> str:
    shown = [(f"**{_plain(p.text)}**" if p.bold else _plain(p.text)) + ("†" if p.unsure else "") for p in pieces]
    return " \\| ".join(shown)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, within one line."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|\[\]])", r"\\\1", text)


def _code(text: str) -> str:
    return "`" + " ".join(text.split()).replace("`", "'") + "`"
