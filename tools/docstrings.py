"""What the reference reads from the source beside docstrings as they are. An extension of griffe (see mkdocs.yml).

Fields of dataclasses have comments in this code, and no docstrings: the comment is their description. Public names in
single backticks become links.
"""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path
from typing import Any

import griffe

import cosda

NAMED = re.compile(r"(?<!`)`(?:cosda\.)?(\w+)`(?!`)")


class Docstrings(griffe.Extension):
    """Comments of fields, links, and the one example of a docstring, which griffe calls examples."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Take the comment beside a field, or above it."""
        if attr.docstring is None and attr.lineno and attr.endlineno and isinstance(attr.filepath, Path):
            text = comment_of(attr.lines_collection[attr.filepath], attr.lineno, attr.endlineno)
            if text:
                attr.docstring = griffe.Docstring(text, parent=attr)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Mark up a docstring."""
        if obj.docstring is not None:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = NAMED.sub(linked, text)


def linked(found: re.Match[str]) -> str:
    """A name in backticks, as a link where it is public."""
    return f"[{found[0]}][cosda.{found[1]}]" if found[1] in cosda.__all__ else found[0]


def comment_of(lines: list[str], first: int, last: int) -> str:
    """The comment in the lines from ``first`` to ``last`` (from 1), or the lines of comments above them."""
    own = io.StringIO("\n".join(line.strip() for line in lines[first - 1 : last]))
    found = [token.string for token in tokenize.generate_tokens(own.readline) if token.type == tokenize.COMMENT]
    above: list[str] = []
    while not found and first > 1 and lines[first - 2].strip().startswith("#"):
        first -= 1
        above.insert(0, lines[first - 1].strip())
    return " ".join(comment.removeprefix("#").strip() for comment in found or above)
