"""The one exception that is shown to a user: what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


LONGEST = 100  # letters of a word for which a known one is looked for; it takes the square of them


class CosdaError(Exception):
    """Wrong input or an impossible request; the command line prints it and exits with code 2."""


class Diverged(CosdaError):
    """Training went so wrong that its numbers mean nothing any more."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the known word closest to ``word``, or an empty string."""
    close = difflib.get_close_matches(word[:LONGEST], list(known), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""
