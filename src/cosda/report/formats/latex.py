r"""Reports as LaTeX: tables for a paper, in a file to \input."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cosda.report.formats.base import Format
from cosda.report.formats.layout import Markup, TextTable, lay_out
from cosda.report.model import wording
from cosda.report.model.table import Table
from cosda.report.tables.contents import Contents

HEAD = r"""% Written by cosda report: \input this file. It needs, in the preamble:
%   \usepackage{booktabs}   % rules of tables
%   \usepackage{graphicx}   % \resizebox, for tables wider than the text
% Names in scripts other than Latin need LuaLaTeX or XeLaTeX and a font that has them."""

# One pass over the text, so that no replacement is replaced again.
SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "`": "{`}",  # no ligature with ? or !
    "*": "{*}",  # after the end of a line a bare * or [ would be an argument
    "[": "{[}",
    "]": "{]}",
    "→": r"$\rightarrow$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "†": r"$\dagger$",
    "…": r"\dots{}",
}


def plain(text: str) -> str:
    """Text that LaTeX shows as it is, within one line."""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    text = re.sub(r"(?<![\w.])-(?=\d)", "−", " ".join(text.split()))  # a minus, not a hyphen
    escaped = "".join(SPECIAL.get(letter, letter) for letter in text)
    return re.sub("-(?=-)", "-{}", escaped).replace("–", "--").replace("−", "$-$")


MARKUP = Markup(plain, bold="\\textbf{{{}}}".format, dagger=r"$^{\dagger}$", bar=r" $\mid$ ")


def render(contents: Contents) -> str:
    r"""The tables of all runs as a file to ``\input``."""
    blocks = [HEAD, *(_table(table, table.caption) for table in contents.overview)]
    for judged in contents.judged:
        title = f"Adaptation to {judged.adaptation.domain}: {judged.adaptation.word}"
        blocks += [_paragraph(title, list(map(plain, wording.judgement(judged.adaptation))))]
        blocks += [_table(table, f"{title}. {table.title}") for table in judged.tables]
    blocks += [_table(table, table.caption) for table in contents.across]
    for chapter in contents.chapters:
        facts = " ".join(f"{plain(fact).removesuffix('.')}." for fact in wording.facts(chapter.section))
        title = f"{chapter.section.title} (rule: {chapter.section.select})"
        blocks += ["\\clearpage\n" + _paragraph(title, [facts, *map(plain, chapter.notes)])]
        blocks += [_table(table, f"{title}. {table.title}") for table in chapter.tables]
    if contents.left_out:
        runs = [f"\\texttt{{{plain(p.run.path.name)}}}: {plain(p.reason)}." for p in contents.left_out]
        blocks += [_paragraph("Runs that could not be read", runs)]
    found = wording.meanings(bool(contents.judged), bool(contents.chapters))
    meanings = [f"\\emph{{{plain(title)}}}: {plain(meaning)}" for title, meaning in found.items()]
    how = [wording.OF_NUMBERS] if contents.judged else []
    how += [wording.HOW_TO_READ] if contents.chapters or not contents.judged else []
    blocks += [_paragraph("What the numbers mean", [*map(plain, how), *meanings])]
    return "\n\n".join(blocks) + "\n"


def _paragraph(title: str, sentences: Sequence[str]) -> str:
    return "\n".join([f"\\paragraph{{{plain(title)}}}", *sentences])


def _table(table: Table, caption: str) -> str:
    text = lay_out(table, MARKUP)
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        f"\\caption{{{plain(caption)}}}",
        r"\small",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        f"\\begin{{tabular}}{{{'l' * text.names}{'r' * (len(text.header) - text.names)}}}",
        r"\toprule",
        _line(text.header),
        r"\midrule",
        *_body(text),
        r"\bottomrule",
        r"\end{tabular}}",
        *([r"\par\smallskip\footnotesize\raggedright"] if table.notes else []),
        *(f"\\par {plain(note)}" for note in table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines)


def _body(text: TextTable) -> list[str]:
    lines = []
    for number, cells in enumerate(text.rows):
        lines += [r"\addlinespace"] * (number in text.breaks)
        lines += [_line(cells)]
    return lines


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


LATEX = Format("LaTeX tables to \\input into a paper", render)
