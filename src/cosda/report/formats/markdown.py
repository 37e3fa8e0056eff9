"""Reports as Markdown, for readers."""

from __future__ import annotations

from cosda import markdown
from cosda.markdown import code, plain
from cosda.report.formats.base import Format
from cosda.report.formats.layout import Markup, lay_out
from cosda.report.model import wording
from cosda.report.model.table import Table
from cosda.report.tables.contents import Chapter, Contents, JudgedRun

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
        lines += [f"- {code(problem.run.path.name)}: {plain(problem.reason)}" for problem in contents.left_out]
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
        lines += ["#### Images to look at", "", *markdown.table(wording.OF_IMAGES, rows, names=4), ""]
    return lines


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
