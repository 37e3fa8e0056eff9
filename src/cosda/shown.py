"""How results read when they are printed, and when a notebook shows them. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Facts:
    """What there is to see: a title, a table, and lines below it."""

    title: str
    rows: Sequence[Sequence[str]]
    header: Sequence[str] = ()  # without one, the first column holds names
    below: Sequence[str] = ()


class Shown:
    """A result that `print` and notebooks show in a few lines. Its ``repr`` stays that of a dataclass."""

    def _facts(self) -> Facts:
        raise NotImplementedError

    def __str__(self) -> str:
        facts = self._facts()
        rows = [list(row) for row in (facts.header, *facts.rows) if row]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([facts.title, *(f"  {line.rstrip()}" for line in lines), *facts.below])

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        facts = self._facts()
        parts = [f"<p><b>{escape(facts.title)}</b></p>", "<table>"]
        if facts.header:
            parts.append(f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in facts.header)}</tr>")
        for first, *others in facts.rows:
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in others)
            parts.append(f"<tr><th>{escape(first)}</th>{cells}</tr>")
        return "\n".join([*parts, "</table>", *(f"<p>{escape(line)}</p>" for line in facts.below)])

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """The same for IPython on a terminal, which would take the ``repr``."""
        return {"text/plain": str(self)}


def percent(value: float) -> str:
    """A share in percent with one decimal."""
    return f"{value:.1%}"
