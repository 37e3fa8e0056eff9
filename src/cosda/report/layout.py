"""From a grid to lines of text, in the paper's three layouts; Markdown and LaTeX only add their mark-up.

* Several numbers a cell (pairs, classes) stand below each other, as in the paper's Tables 2 and 3: a line for the
  accuracy and one for the drop.
* A table of very many pairs is turned, as the paper's Table 1: pairs go down, methods across, and a cell holds
  "accuracy | drop".
* Where the paper has numbers, a line with these follows each of ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from cosda.report import wording
from cosda.report.grids import Entry, Grid, Line, Measure

PAPER = "paper"


@dataclass(frozen=True)
class Piece:
    """Text of one number or name, unescaped, and what sets it apart."""

    text: str
    bold: bool = False
    unsure: bool = False


Pieces = tuple[Piece, ...]  # of one cell; a bar stands between two


@dataclass(frozen=True)
class Sheet:
    """A table of text."""

    header: tuple[str, ...]
    names: int  # so many columns at the left hold names, the others numbers
    lines: tuple[tuple[Pieces, ...], ...]
    breaks: frozenset[int]  # lines with which a new block begins


def lay_out(grid: Grid) -> Sheet:
    """The text of a grid."""
    if grid.kind == "pairs" and any(heading.block and heading.average for heading in grid.columns):
        return _turned(grid)
    return _stacked(grid)


def _stacked(grid: Grid) -> Sheet:
    parts = any(row.part for row in grid.rows)
    seeds = any(row.seeds for row in grid.rows)
    several = any(len(heading.measures) > 1 for heading in grid.columns)
    kinds = several or grid.has_published
    header = ["rule" if grid.kind == "rules" else "method", *(["stage"] * parts), *(["seeds"] * seeds), *([""] * kinds)]
    lines: list[tuple[Pieces, ...]] = []
    breaks: set[int] = set()
    previous = ""
    for row in grid.rows:
        if (parts or kinds) and row.name != previous and lines:
            breaks.add(len(lines))
        names = [row.name if row.name != previous else "", *([row.part] * parts), *([row.seeds] * seeds)]
        previous = row.name
        for title, cells in _lines_of(grid, row, several):
            lines.append((*((Piece(name),) for name in names), *(((Piece(title),),) if kinds else ()), *cells))
            names = [""] * len(names)
    return Sheet((*header, *(h.title for h in grid.columns)), len(header), tuple(lines), frozenset(breaks))


def _lines_of(grid: Grid, row: Line, several: bool) -> list[tuple[str, list[Pieces]]]:
    """Ours and the paper's numbers of one row, a line for each measure, with the name of the line."""
    count = max(len(heading.measures) for heading in grid.columns) if grid.columns else 0
    lines: list[tuple[str, list[Pieces]]] = []
    for j in range(count):
        numbers = [(cell[j], heading.measures[j]) for cell, heading in zip(row.entries, grid.columns, strict=True)]
        lines.append((numbers[0][1].title if several else "ours", [(_piece(*number),) for number in numbers]))
        if any(entry.published is not None for entry, _ in numbers):
            lines.append((PAPER, [(Piece(wording.show_published(*number)),) for number in numbers]))
    return lines


def _turned(grid: Grid) -> Sheet:
    header = ["pair", *([""] * grid.has_published), *(row.name for row in grid.rows)]
    seeds = [(Piece(row.seeds),) for row in grid.rows]
    lines: list[tuple[Pieces, ...]] = [((Piece("seeds"),), *([(Piece(""),)] * grid.has_published), *seeds)]
    breaks: set[int] = {1}
    for i, heading in enumerate(grid.columns):
        if i and heading.block != grid.columns[i - 1].block:
            breaks.add(len(lines))
        cells = [[(entry, m) for entry, m in zip(row.entries[i], heading.measures, strict=True)] for row in grid.rows]
        ours = [tuple(_piece(*number) for number in cell) for cell in cells]
        name = (Piece(heading.title),)
        lines.append((name, *([(Piece("ours"),)] * grid.has_published), *ours))
        if any(entry.published is not None for cell in cells for entry, _ in cell):
            papers = [tuple(Piece(wording.show_published(*number)) for number in cell) for cell in cells]
            lines.append(((Piece(""),), (Piece(PAPER),), *map(_without_empty, papers)))
    return Sheet(tuple(header), 1 + grid.has_published, tuple(lines), frozenset(breaks))


def _without_empty(pieces: Pieces) -> Pieces:
    return tuple(piece for piece in pieces if piece.text) or (Piece(""),)


def _piece(entry: Entry, measure: Measure) -> Piece:
    return Piece(wording.show_entry(entry, measure), entry.best, entry.unsure)
