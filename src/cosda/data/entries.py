"""Entries of the cache: folders that are looked at before they are believed, and made again when they do not fit.

    <cache>/<kind>/<name>/…            the files of an entry
    <cache>/<kind>/<name>/entry.json   facts about them, their lengths and hashes, and a hash of all this; written last
    <cache>/<kind>/<name>/seen         sizes, times and inodes of the files when their bytes were last hashed
    <cache>/<kind>/<name>.partial      an entry that is being made, or that a killed process left
    <cache>/locks/<name>.lock          held while an entry is made

An entry is opened in three steps: ``entry.json`` must be whole and belong to the folder's name; the files must have
their lengths; their bytes must have their hashes. The last step reads everything, some two seconds for a gigabyte. It
is left out while the system says that no file has been touched since it was done (``seen``). So a changed byte is
noticed, also in a file that has got its old times back; a disk that loses bits by itself is noticed by `survey` alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from cosda.errors import CannotWrite, CosdaError
from cosda.files import JSON_BYTES, Json, digest, flush, open_regular, parse_json, read_regular, write_atomically

KINDS = ("packs", "features")
ENTRY, SEEN, PARTIAL = "entry.json", "seen", ".partial"
OURS = re.compile(r"[0-9a-f]{32}-\d+-v\d+|[0-9a-f]{10}(\.npy|\.lock)?")  # names of entries, of older versions too
_CHUNK = 2**20
_MARK = 1_000  # bytes of what says that an entry was seen
_seen: dict[Path, str] = {}  # where a cache cannot be written


def default_cache() -> Path:
    """``$COSDA_CACHE``, or ``~/.cache/cosda``."""
    return Path(os.environ.get("COSDA_CACHE") or Path.home() / ".cache" / "cosda").expanduser()


def cache_folder(cache: str | Path | None) -> Path:
    """The given cache, or the default one."""
    return Path(cache).expanduser() if cache else default_cache()


# --- Opening and making -----------------------------------------------------------------------------------------------


def open_entry(place: Path, write: Callable[[Path], Json], needed: int, advice: str) -> Json:
    """The facts of an entry, which is made first if there is none or if it does not fit.

    Args:
        place: ``<cache>/<kind>/<name>``.
        write: writes the files of the entry into a folder, and returns the facts.
        needed: about how many bytes that takes.
        advice: what a user can do where the cache cannot be written.
    """
    if (facts := read_entry(place)) is not None:
        return facts
    cache = place.parent.parent
    with _explained(place.parent, needed, advice), _locked(cache, place.name):
        if (facts := read_entry(place)) is None:  # nobody made it while this process waited
            _sweep(place)
            facts = _make(place, write)
    return facts


def read_entry(place: Path) -> Json | None:
    """The facts of an entry that fits; None where there is none, or one that does not."""
    if fault_of(place):
        return None
    with suppress(OSError):
        os.utime(place / SEEN)  # when it was last used
    return dict(_description(place)["facts"])


def fault_of(place: Path, thorough: bool = False) -> str:
    """What is wrong with an entry; empty where it fits. Untouched files are hashed only if this shall be thorough."""
    try:
        described = _description(place)
        files = {place / name: said for name, said in described["files"].items()}
        for file, said in files.items():
            if (length := file.stat().st_size) != said["bytes"]:
                return f"{file.name} has {length} bytes and not {said['bytes']}"
        now = _stamp(list(files))
        known = now in (_seen.get(place), _read_seen(place))
        if thorough or not known:
            for file, said in files.items():
                if _hash(file) != said["blake2b"]:
                    return f"{file.name} has other bytes than when it was written"
        if not known:
            _remember(place, now)
    except FileNotFoundError as error:
        return f"{Path(error.filename or ENTRY).name} is missing"
    except (CosdaError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return str(error) or type(error).__name__
    return ""


def _description(place: Path) -> Json:
    """What entry.json says, if it is whole and belongs here."""
    described = parse_json(read_regular(place / ENTRY, JSON_BYTES), ENTRY)
    check = described.pop("check")
    if check != digest(described):
        raise ValueError(f"{ENTRY} is damaged")
    if described["name"] != place.name:
        raise ValueError(f"{ENTRY} belongs to {described['name']}")
    return dict(described)


def _make(place: Path, write: Callable[[Path], Json]) -> Json:
    """Write an entry beside its place and rename it when all of it is on the disk."""
    partial = place.with_name(place.name + PARTIAL)
    for left in (place, partial):  # damaged, or of a killed process: this one holds the lock
        _remove(left)
    partial.mkdir(parents=True)
    try:
        facts = write(partial)
        files = {f.name: {"bytes": f.stat().st_size, "blake2b": _hash(f)} for f in sorted(partial.iterdir())}
        described = {"name": place.name, "facts": facts, "files": files}
        text = json.dumps({**described, "check": digest(described)}, indent=1)
        (partial / ENTRY).write_text(text, encoding="utf-8")
        for file in partial.iterdir():
            flush(file)
        flush(partial)
        os.rename(partial, place)
        flush(place.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _remember(place, _stamp([place / name for name in files]))
    return json.loads(json.dumps(facts))  # type: ignore[no-any-return]  # as it will be read


def _hash(file: Path) -> str:
    total = hashlib.blake2b(digest_size=16)
    with open_regular(file) as opened:
        while chunk := opened.read(_CHUNK):
            total.update(chunk)
    return total.hexdigest()


def _stamp(files: list[Path]) -> str:
    """What the system says of files; whoever changes a file changes this."""
    stats = [file.stat() for file in files]
    return digest([[stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino] for stat in stats])


def _read_seen(place: Path) -> str | None:
    with suppress(OSError, ValueError):
        return read_regular(place / SEEN, _MARK).decode("ascii")
    return None


def _remember(place: Path, stamp: str) -> None:
    _seen[place] = stamp
    with suppress(CannotWrite):  # a cache that can only be read is hashed once in each process
        write_atomically(place / SEEN, stamp)


@contextmanager
def _locked(cache: Path, name: str, timeout: float = -1) -> Iterator[None]:
    """Be the only process that makes this entry."""
    (cache / "locks").mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "locks" / f"{name}.lock", timeout=timeout):
        yield


def _is_free(cache: Path, name: str) -> bool:
    """Whether no process is making this entry."""
    try:
        with _locked(cache, name, timeout=0):
            return True
    except Timeout:
        return False


def _sweep(mine: Path) -> None:
    """Remove what killed processes left of other entries: partial ones whose lock nobody holds."""
    for partial in mine.parent.glob(f"*{PARTIAL}"):
        if partial.stem != mine.name:
            with suppress(Timeout, OSError), _locked(mine.parent.parent, partial.stem, timeout=0):
                shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _explained(folder: Path, needed: int, advice: str) -> Iterator[None]:
    """Say what a full disk or an unwritable folder of entries means for the user."""
    cache = folder.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(cache).free
        if free < needed:
            raise CosdaError(
                f"the cache {cache} has {free / 2**20:.0f} MiB left, and {needed / 2**20:.0f} MiB are to be written. "
                f"{advice}"
            )
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise CosdaError(f"the cache {cache} cannot be written: {reason}. {advice}") from error


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


# --- Looking after a cache --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """What lies in a cache: an entry, or what is left of one. Entries that do not fit say why."""

    path: Path
    bytes: int
    unused_days: float
    fault: str

    def as_json(self) -> Json:
        """Plain values."""
        return {"path": str(self.path), "bytes": self.bytes, "unused_days": self.unused_days, "fault": self.fault}


def survey(cache: str | Path | None = None) -> list[Entry]:
    """All entries of a cache but those that are just made, and what is wrong with them; every byte is read."""
    folder = cache_folder(cache)
    places = [place for kind in KINDS for place in sorted((folder / kind).glob("*"))]
    ours = [place for place in places if OURS.fullmatch(place.name.removesuffix(PARTIAL))]
    return [_entry(place) for place in ours if place.suffix != PARTIAL or _is_free(folder, place.stem)]


def prune(cache: str | Path | None = None, unused_days: float | None = None, dry: bool = False) -> list[Entry]:
    """Remove entries that do not fit, and those that were not used for so many days; return them.

    An entry that a process is just making stays. With ``dry`` nothing is removed.
    """
    folder, gone = cache_folder(cache), []
    for entry in survey(folder):
        old = unused_days is not None and entry.unused_days >= unused_days
        with suppress(Timeout), _locked(folder, entry.path.name.removesuffix(PARTIAL), timeout=0):
            if entry.fault or old:
                gone.append(entry)
                if not dry:
                    _remove(entry.path)
    return gone


def _entry(place: Path) -> Entry:
    try:
        used = (place / SEEN if (place / SEEN).exists() else place).stat().st_mtime
        size = sum(file.stat().st_size for file in [place, *place.rglob("*")] if file.is_file())
    except FileNotFoundError:  # somebody else removed it
        return Entry(place, 0, 0.0, "it has vanished")
    if place.suffix == PARTIAL:
        fault = "it was left unfinished"
    else:
        fault = fault_of(place, thorough=True) if place.is_dir() else "it is of an older version"
    return Entry(place, size, max(0.0, time.time() - used) / 86400, fault)
