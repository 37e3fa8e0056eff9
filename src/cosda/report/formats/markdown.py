"""Reports as Markdown, for readers."""

from __future__ import annotations

from cosda import markdown, metrics
from cosda.markdown import code, plain
from cosda.report.formats.base import Format
from cosda.report.formats.layout import Markup, lay_out
from cosda.report.model import wording
from cosda.report.model.table import Table
from cosda.report.tables.contents import Chapter, Contents

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
        lines += [f"- {code(problem.run.path.name)}: {plain(problem.reason)}" for problem in contents.left_out]
        lines += [""]
    lines += ["## What the numbers mean", "", wording.HOW_TO_READ, ""]
    lines += [f"- **{plain(measure.title)}**: {plain(measure.meaning)}" for measure in metrics.MEASURES.values()]
    return "\n".join(lines) + "\n"


def _chapter(chapter: Chapter) -> list[str]:
    section = chapter.section
    lines = [f"## {plain(section.title)} (rule: {plain(section.select)})", ""]
    lines += [f"- {plain(fact)}" for fact in wording.facts(section)]
    lines += [f"- Data: {code(section.fingerprint)}", ""]
    for table in chapter.tables:
        lines += [f"### {plain(table.title)}", "", *_table(table)]
    if chapter.notes:
        lines += ["Empty cells and missing seeds:", "", *(f"- {plain(note)}" for note in chapter.notes), ""]
    return lines


def _table(table: Table) -> list[str]:
    text = lay_out(table, MARKUP)
    lines = [*markdown.table(text.header, text.rows, text.names), ""]
    return [*lines, *(f"- {plain(note)}" for note in table.notes), ""] if table.notes else lines


MARKDOWN = Format("Markdown, for readers", render)
