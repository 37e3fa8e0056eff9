"""The one exception that is shown to a user: what is wrong, where, and what to do. Also of what a system refuses."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Iterable

LONGEST = 100  # letters of a word for which a known one is looked for; it takes the square of them


class CosdaError(Exception):
    """Wrong input or an impossible request; the command line prints it and exits with code 2."""


class Diverged(CosdaError):
    """Training went so wrong that its numbers mean nothing any more."""


class CannotWrite(CosdaError):
    """The system refuses to write a file: a full disk, a wrong place, a drive that does not answer."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the known word closest to ``word``, or an empty string."""
    close = difflib.get_close_matches(word[:LONGEST], list(known), n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""


# --- What a system refuses --------------------------------------------------------------------------------------------

_FULL = "Make room there, or choose another place."
_FORBIDDEN = "Choose another place, or have it allowed."
_GONE = "The disk or network drive does not answer. Repeat the command when it does."
_MEMORY = "Smaller batches (--batch-size) and fewer --workers or --threads take less; so does a smaller --size."
_FILES = "Too many files are open: 'ulimit -n' shows and raises the limit."
_ADVICE = {
    "ENOSPC": _FULL, "EDQUOT": _FULL, "EFBIG": "The file system, or 'ulimit -f', allows no larger file.",
    "EROFS": _FORBIDDEN, "EACCES": _FORBIDDEN, "EPERM": _FORBIDDEN,
    "EIO": _GONE, "ESTALE": _GONE, "ENOTCONN": _GONE, "ETIMEDOUT": _GONE, "EHOSTDOWN": _GONE, "EHOSTUNREACH": _GONE,
    "ENODEV": _GONE, "ENXIO": _GONE, "EREMOTEIO": _GONE, "ECONNRESET": _GONE,
    "ENOENT": "It was never there, or has vanished: is the drive still mounted?",
    "ENOTDIR": "A file stands where a folder must be; choose another place.",
    "EEXIST": "A file stands where a folder must be; choose another place.",
    "EISDIR": "A folder stands where a file must be; choose another place.",
    "ENAMETOOLONG": "Choose a shorter name.", "ELOOP": "Links lead in a circle there.",
    "EMFILE": _FILES, "ENFILE": _FILES, "ENOMEM": _MEMORY,
}  # fmt: skip
_BY_NUMBER = {getattr(errno, name): advice for name, advice in _ADVICE.items() if hasattr(errno, name)}
_FOREIGN = re.compile(r"\(os error (\d+)\)")  # how libraries written in Rust say it, such as safetensors
_NO_MEMORY = re.compile(r"can't allocate memory|out of memory|std::bad_alloc", re.IGNORECASE)  # torch, on any device


def refusal(error: BaseException) -> OSError | None:
    """What the system refused, where that is what an error says; None for any other error."""
    if isinstance(error, OSError):
        return error
    if found := _FOREIGN.search(str(error)):
        return OSError(int(found[1]), os.strerror(int(found[1])))
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
        return OSError(errno.ENOMEM, "out of memory")
    return None


def is_gone(error: OSError) -> bool:
    """Whether a disk or a network drive does not answer, which says nothing of the file."""
    return error.errno in _BY_NUMBER and _BY_NUMBER[error.errno] == _GONE


def in_words(error: OSError, path: str | os.PathLike[str] | None = None) -> str:
    """A refusal in one line: where, why, and what to do."""
    where = path or error.filename
    reason = error.strerror or str(error) or type(error).__name__
    return f"{f'{where}: ' if where else ''}{reason}. {_BY_NUMBER.get(error.errno or 0, '')}".rstrip()
