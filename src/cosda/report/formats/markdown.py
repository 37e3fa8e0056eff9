"""Reports as Markdown, for readers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cosda import metrics
from cosda.report.formats.base import Format
from cosda.report.formats.layout import Markup, lay_out
from cosda.report.model import wording
from cosda.report.model.table import Table
from cosda.report.tables.contents import Chapter, Contents


def plain(text: str) -> str:
    """Text that Markdown shows as it is, within one line."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|\[\]])", r"\\\1", text)


MARKUP = Markup(plain, bold="**{}**".format, dagger="†", bar=" \\| ")


def render(contents: Contents) -> str:
    """The tables of all runs, with the rules they were made under, as GitHub-flavoured Markdown."""
    lines = ["# cosda report", ""]
    for table in contents.across:
        lines += [f"## {plain(table.caption)}", "", *_table(table)]
    for chapter in contents.chapters:
        lines += _chapter(chapter)
    if contents.left_out:
        lines += ["## Runs that could not be read", ""]
        lines += [f"- {_code(problem.run.path.name)}: {plain(problem.reason)}" for problem in contents.left_out]
        lines += [""]
    lines += ["## What the numbers mean", "", wording.HOW_TO_READ, ""]
    lines += [f"- **{plain(measure.title)}**: {plain(measure.meaning)}" for measure in metrics.MEASURES.values()]
    return "\n".join(lines) + "\n"


def _chapter(chapter: Chapter) -> list[str]:
    section = chapter.section
    lines = [f"## {plain(section.title)} (rule: {plain(section.select)})", ""]
    lines += [f"- {plain(fact)}" for fact in wording.facts(section)]
    lines += [f"- Data: {_code(section.fingerprint)}", ""]
    for table in chapter.tables:
        lines += [f"### {plain(table.title)}", "", *_table(table)]
    if chapter.notes:
        lines += ["Empty cells and missing seeds:", "", *(f"- {plain(note)}" for note in chapter.notes), ""]
    return lines


def _table(table: Table) -> list[str]:
    text = lay_out(table, MARKUP)
    numbers = len(text.header) - text.names
    lines = [_line(text.header), _line([*(["---"] * text.names), *(["--:"] * numbers)]), *map(_line, text.rows), ""]
    return [*lines, *(f"- {plain(note)}" for note in table.notes), ""] if table.notes else lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _code(text: str) -> str:
    return "`" + " ".join(text.split()).replace("`", "'") + "`"


MARKDOWN = Format("Markdown, for readers", render)
