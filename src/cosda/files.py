"""Files and folders that are written whole or not at all, files that are opened with care, and names. No torch."""

from __future__ import annotations

import csv
import ctypes
import errno
import glob
import hashlib
import io
import json
import os
import platform
import re
import shutil
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from cosda.errors import CannotWrite, CosdaError, in_words, refusal
from cosda.units import amount

Json = dict[str, Any]
JSON_BYTES = 2**26  # of a file; a tenth of it would be a large one


def digest(value: Any) -> str:
    """Ten hexadecimal digits that name a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


# --- Names ------------------------------------------------------------------------------------------------------------

NAME_BYTES = 100  # of a part of a file's name; file systems allow 255 for the whole
_NO_NAME = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')  # what some file system cannot hold
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # devices of Windows


def safe_name(name: str) -> str:
    """A name from data as part of a file's name: usual names stay as they are, and no name leads elsewhere.

    What a file system may refuse or read as a path (``/``, ``..``, reserved names, control characters, bytes that are
    no text, too many letters) is replaced or cut, and ten digits then tell it from other names.

    Example:
        >>> safe_name("Real World"), safe_name("../../etc")
        ('Real World', '_.._etc~0a25cdfe57')
    """
    clean = _NO_NAME.sub("_", as_text(name)).lstrip(".").rstrip(". ")
    clean = clean.encode()[:NAME_BYTES].decode(errors="ignore")
    reserved = _RESERVED.fullmatch(clean) is not None
    if clean == name and name and not reserved:
        return name
    return f"{'_' * reserved}{clean}~{digest(as_text(name))}"


def as_text(name: str) -> str:
    """A name from data or from the system as text that can be printed and written anywhere.

    Bytes that are no text, control characters and line ends become escapes such as ``\\x1b``, so that a name can
    neither stop a program that prints it nor steer the terminal that shows it.
    """
    if name.isprintable():
        return name
    return "".join(
        _escaped(letter) if unicodedata.category(letter) in _UNSHOWN or letter in _TURNS else letter for letter in name
    )


_TURNS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # have text shown from right to left
_UNSHOWN = ("Cc", "Cs", "Zl", "Zp")  # control characters, bytes that are no text, ends of lines and paragraphs


def _escaped(letter: str) -> str:
    number = ord(letter)
    if 0xDC80 <= number <= 0xDCFF:  # how Python writes a byte that is no text
        number -= 0xDC00
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


# --- Reading and writing ----------------------------------------------------------------------------------------------


def real_path(path: str | os.PathLike[str]) -> Path:
    """Where a path leads, behind all links; one that leads in a circle is left as it is."""
    return Path(os.path.realpath(path))


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read it; a pipe or a device, which may never end, is an `OSError`."""
    file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(file).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device and not a file", str(path))
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """The bytes of a file; one with more than ``most`` is an `OSError`, before it is in memory."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
    if (size := max(size, len(content))) > most:
        raise OSError(errno.EFBIG, f"it has {amount(size)}, and {amount(most)} is the limit", str(path))
    return content


def read_json(path: str | os.PathLike[str], most: int = JSON_BYTES) -> Any:
    """What a JSON file holds.

    Raises:
        CosdaError: it cannot be read, or it is no JSON.
    """
    try:
        content = read_regular(path, most)
    except OSError as error:
        raise CosdaError(f"{path} cannot be read: {error.strerror or error}.") from None
    return parse_json(content, str(path))


def parse_json(content: bytes | str, where: str) -> Any:
    """The value of a JSON text.

    Raises:
        CosdaError: it is no JSON, or its values lie too deep in each other.
    """
    try:
        return json.loads(content if isinstance(content, str) else content.decode("utf-8-sig"))
    except RecursionError:
        raise CosdaError(f"{where} is damaged: its values lie too deep in each other.") from None
    except ValueError as error:  # also of numbers with more digits than Python reads, and of what is no text
        raise CosdaError(f"{where} is damaged: {error}.") from None


def csv_text(rows: Iterable[Iterable[str]]) -> str:
    """Rows as CSV. A cell that a spreadsheet would take for a formula has ``'`` before it; numbers stay as they are."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([map(_cell, row) for row in rows])
    return text.getvalue()


_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBERS = re.compile(r"[-+]?[0-9.][-+0-9.eE ]*|[-+]?(inf|nan)")


def _cell(text: str) -> str:
    text = as_text(text)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBERS.fullmatch(text) else text


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Within the block ``path`` is written: what the system refuses becomes a `CannotWrite` that says what to do."""
    try:
        yield
    except CosdaError:
        raise
    except Exception as error:
        refused = refusal(error)
        if refused is None:
            raise
        raise CannotWrite(f"cannot write {in_words(refused, path)}") from error


def check_folder(path: str | os.PathLike[str], needed: int = 0) -> None:
    """An error, before any work, where files could not be put into a folder afterwards; it need not be there yet.

    Args:
        path: the folder.
        needed: bytes that there must be room for at least.

    Raises:
        CannotWrite: a file is in the way, or it is forbidden, or the disk is too full.
    """
    with writing(path):
        there = next(place for place in (Path(path), *Path(path).absolute().parents) if place.exists())
        if not there.is_dir():
            raise OSError(errno.ENOTDIR, f"{there} is a file")
        if not os.access(there, os.W_OK | os.X_OK):
            read_only = hasattr(os, "statvfs") and os.statvfs(there).f_flag & os.ST_RDONLY
            number = errno.EROFS if read_only else errno.EACCES
            raise OSError(number, os.strerror(number))
        if (free := shutil.disk_usage(there).free) < needed:
            raise OSError(errno.ENOSPC, f"{amount(free)} are free, and at least {amount(needed)} are needed")


def check_file(path: str | os.PathLike[str]) -> None:
    """An error, before any work, where a file could not be written afterwards.

    Raises:
        CannotWrite: a folder or a device is in the way, or its folder cannot be written.
    """
    place = Path(path)
    with writing(path):
        if place.is_dir():
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if place.exists() and not place.is_file():
            raise OSError(errno.EINVAL, "it is a pipe or a device and not a file")
        check_folder(real_path(place).parent)  # a file is replaced as a whole


def write_atomically(path: str | Path, content: bytes | str | Callable[[Path], object]) -> Path:
    """Write a file or a folder so that a reader, also after a kill, sees the old one or the whole new one.

    Args:
        path: where it is to be. Folders above it are made. Behind a link, it is what the link leads to.
        content: the bytes or the text of a file; or a function that makes a file or a folder at the path that it is
            given, which lies beside ``path`` until all of it is on the disk.

    Raises:
        CannotWrite: the system refuses it. What was there before is still there, and nothing else.
    """
    given = path = Path(path)
    with writing(given):
        if path.is_symlink():
            path = real_path(path)
        if path.exists() and not (path.is_file() or path.is_dir()):  # a link to a device would have it replaced
            raise OSError(errno.EINVAL, "it is a pipe or a device and not a file")
        new, old = (path.with_name(own_name(f".{path.name}.", f".{suffix}")) for suffix in ("tmp", "old"))
        make_folder(path.parent)
        sweep(path.parent, f".{path.name}.", ".tmp")
        try:
            if callable(content):
                content(new)
            else:
                new.write_bytes(encoded(content) if isinstance(content, str) else content)
            for part in [*new.rglob("*"), new]:
                flush(part)
            _replace(path, new, old)
            flush(path.parent)
        finally:
            with suppress(OSError):  # where a drive is gone, the reason matters more than what is left there
                _remove(new)
    return given


def own_name(begin: str, end: str = "") -> str:
    """The name of a file that belongs to this process of this machine."""
    return f"{begin}{digest(platform.node())}-{os.getpid()}{end}"


def sweep(folder: Path, begin: str, end: str = "") -> None:
    """Remove what has an `own_name` of this machine's processes that are dead, or of this one."""
    begin = own_name(begin).removesuffix(str(os.getpid()))
    for left in folder.glob(f"{glob.escape(begin)}*{glob.escape(end)}"):
        number = left.name[len(begin) : len(left.name) - len(end)]
        if number.isdecimal() and not _is_alive(int(number)):
            _remove(left)


def _is_alive(process: int) -> bool:
    """Whether there is another process of this number; where nobody can tell, there is."""
    if process == os.getpid():
        return False
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


def make_folder(path: Path) -> None:
    """Make a folder and those above it; their names are on the disk when this returns."""
    missing = [place for place in (path, *path.parents) if not place.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for made in missing:
        flush(made.parent)


def encoded(text: str) -> bytes:
    """A text as UTF-8. What is no letter, as names of files may hold it, becomes an escape that JSON knows."""
    return text.encode("utf-8", "backslashreplace")


def flush(path: Path) -> None:
    """Have the bytes of a file, or the names in a folder where a system can do that, on the disk when this returns."""
    try:
        opened = os.open(path, os.O_RDONLY)
    except OSError:
        if path.is_dir():
            return
        raise
    try:
        os.fsync(opened)
    except OSError as error:
        if not (path.is_dir() and error.errno in _NOT_OF_FOLDERS):
            raise
    finally:
        os.close(opened)


_NOT_OF_FOLDERS = {errno.EINVAL, errno.EACCES, errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP}


def _replace(path: Path, new: Path, old: Path) -> None:
    """Rename what is finished. Where the system cannot exchange two folders at once, the old one is put aside first."""
    if not (new.is_dir() and path.exists()):
        os.replace(new, path)
        return
    if _exchange(new, path):
        return  # what now is called new is the old one, which the caller removes
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        old.rename(path)
        raise
    _remove(old)


def _exchange(one: Path, other: Path) -> bool:
    """Let two names change places in one step; False where the system cannot do that."""
    try:
        rename = ctypes.CDLL(None).renameat2  # Linux alone has it
    except (AttributeError, OSError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` atomically as JSON."""
    write_atomically(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"adapt": {"lr": 1}}`` -> ``{"adapt.lr": 1}``, in the order of the tree."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat
