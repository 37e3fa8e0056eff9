r"""Reports as LaTeX: tables for a paper, in a file to \input."""

from __future__ import annotations

import re

from cosda.report import wording
from cosda.report.columns import SUMMARY
from cosda.report.contents import Contents
from cosda.report.grids import Grid
from cosda.report.layout import Pieces, Sheet, lay_out

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


def latex(book: Contents) -> str:
    r"""The tables of all runs as a file to ``\input``."""
    blocks = [HEAD]
    blocks += [_table(grid, wording.caption(grid)) for grid in book.across]
    for chapter in book.chapters:
        facts = " ".join(f"{plain(fact).removesuffix('.')}." for fact in wording.facts(chapter.section))
        notes = [plain(note) for note in wording.section_notes(chapter.section)]
        title = f"{chapter.section.title} (rule: {chapter.section.select})"
        blocks += ["\\clearpage\n" + _paragraph(title, [facts, *notes])]
        blocks += [_table(grid, f"{title}. {grid.title}") for grid in chapter.grids]
    if book.left_out:
        runs = [f"\\texttt{{{plain(p.run.path.name)}}}: {plain(p.reason)}." for p in book.left_out]
        blocks += [_paragraph("Runs that could not be placed", runs)]
    meanings = [f"\\emph{{{plain(column.title)}}}: {plain(column.meaning)}" for column in SUMMARY]
    blocks += [_paragraph("What the numbers mean", [plain(wording.HOW_TO_READ), *meanings])]
    return "\n\n".join(blocks) + "\n"


def _paragraph(title: str, sentences: list[str]) -> str:
    return "\n".join([f"\\paragraph{{{plain(title)}}}", *sentences])


def _table(grid: Grid, caption: str) -> str:
    sheet = lay_out(grid)
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        f"\\caption{{{plain(caption)}}}",
        r"\small",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        f"\\begin{{tabular}}{{{'l' * sheet.names}{'r' * (len(sheet.header) - sheet.names)}}}",
        r"\toprule",
        _line([plain(title) for title in sheet.header]),
        r"\midrule",
        *_body(sheet),
        r"\bottomrule",
        r"\end{tabular}}",
        *([r"\par\smallskip\footnotesize\raggedright"] if grid.notes else []),
        *(f"\\par {plain(note)}" for note in grid.notes),
        r"\end{table}",
    ]
    return "\n".join(lines)


def _body(sheet: Sheet) -> list[str]:
    lines = []
    for number, cells in enumerate(sheet.lines):
        lines += [r"\addlinespace"] * (number in sheet.breaks)
        lines += [_line([_pieces(pieces) for pieces in cells])]
    return lines


def _pieces(pieces: Pieces) -> str:
    shown = [(f"\\textbf{{{plain(p.text)}}}" if p.bold else plain(p.text)) + r"$^{\dagger}$" * p.unsure for p in pieces]
    return r" $\mid$ ".join(shown)


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def plain(text: str) -> str:
    """Text that LaTeX shows as it is, within one line."""
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    text = re.sub(r"(?<![\w.])-(?=\d)", "−", " ".join(text.split()))  # a minus, not a hyphen
    escaped = "".join(SPECIAL.get(letter, letter) for letter in text)
    return re.sub("-(?=-)", "-{}", escaped).replace("–", "--").replace("−", "$-$")
