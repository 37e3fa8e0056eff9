"""Reports as Markdown, for readers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cosda.report.formats.base import Format
from cosda.report.formats.layout import Markup, lay_out
from cosda.report.model import wording
from cosda.report.model.table import Table
from cosda.report.tables.contents import Chapter, Contents, JudgedRun


def plain(text: str) -> str:
    """Text that Markdown shows as it is, within one line."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|\[\]])", r"\\\1", text)


MARKUP = Markup(plain, bold="**{}**".format, dagger="†", bar=" \\| ")


def render(contents: Contents) -> str:
    """The tables of all runs, with the rules they were made under, as GitHub-flavoured Markdown."""
    lines = ["# cosda report", ""]
    for table in contents.overview:
        lines += [f"## {plain(table.title)}", "", *_table(table)]
    for judged in contents.judged:
        lines += _adaptation(judged)
    for table in contents.across:
        lines += [f"## {plain(table.caption)}", "", *_table(table)]
    for chapter in contents.chapters:
        lines += _chapter(chapter)
    if contents.left_out:
        lines += ["## Runs that could not be read", ""]
        lines += [f"- {_code(problem.run.path.name)}: {plain(problem.reason)}" for problem in contents.left_out]
        lines += [""]
    lines += ["## What the numbers mean", ""]
    lines += [wording.OF_NUMBERS, ""] if contents.judged else []
    lines += [wording.HOW_TO_READ, ""] if contents.chapters or not contents.judged else []
    meanings = wording.meanings(bool(contents.judged), bool(contents.chapters))
    lines += [f"- **{plain(title)}**: {plain(meaning)}" for title, meaning in meanings.items()]
    return "\n".join(lines) + "\n"


def _adaptation(judged: JudgedRun) -> list[str]:
    """What a reader must know of one adaptation: verdict, reasons, numbers, images to look at."""
    adaptation = judged.adaptation
    title = f"Adaptation to {adaptation.domain}: {adaptation.word}"
    lines = [f"### {plain(title)}", "", *(f"- {plain(fact)}" for fact in wording.judgement(adaptation)), ""]
    for table in judged.tables:
        lines += [f"#### {plain(table.title)}", "", *_table(table)]
    if adaptation.images:
        rows = [tuple(map(plain, wording.image(image))) for image in adaptation.images]
        lines += ["#### Images to look at", "", _line(wording.OF_IMAGES), _line(["---"] * 4), *map(_line, rows), ""]
    return lines


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
