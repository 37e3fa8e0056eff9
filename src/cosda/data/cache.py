"""The packed cache: every image is decoded once and then read from a memory map.

    <cache>/keys/<what stat says>            the content key of files that have not been touched since, and a hash of it
    <cache>/packs/<content key>-<size>-v1/   an entry (`entries`) with pixels.u8 (N, S, S, 3)

A pack is named by the bytes of its files, so that a moved, copied or renamed folder finds it again and a
changed image does not. It is made in a folder ``….partial`` under a lock and renamed when it is whole:
after a kill there is no half pack, and of two processes one waits and uses what the other made.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np

from cosda.data.decode import Decoder, Pixels, Progress, Unreadable, decode, fetch, in_parallel
from cosda.data.decode import digest as image_digest
from cosda.data.domain import Domain, Files, Images, Index, Items, Undecoded, part_of
from cosda.data.entries import cache_folder, open_entry
from cosda.errors import CannotWrite, CosdaError
from cosda.files import Json, digest, read_regular, write_atomically

VERSION = 1  # raise it whenever the decoded pixels change
ADVICE = "Set COSDA_CACHE to another folder, or use --no-pack."
Skipped = list[tuple[str, str]]
_KEYS: WeakKeyDictionary[Images, str] = WeakKeyDictionary()


@dataclass(frozen=True)
class Packed:
    """A domain whose images can be read, without those that cannot: (name, reason) of each."""

    domain: Domain
    skipped: Skipped


def pack(
    domain: Domain,
    size: int,
    cache: str | Path | None = None,
    strict: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Packed:
    """Decode a domain's images to ``size``, once, and map them into memory; arrays pass as they are.

    ``progress(done, total)`` is called while files are read for their key, and again while they are decoded.
    Images that cannot be decoded are left out and listed, or with ``strict`` stop everything.
    """
    if not isinstance(domain.items, Undecoded):
        return Packed(domain, [])
    images = domain.items
    place = pack_path(domain, size, cache, workers, progress)
    facts = open_entry(
        place, lambda partial: _write(partial, images, size, workers, progress), len(domain) * size * size * 3, ADVICE
    )
    reasons = {int(position): reason for position, reason in facts["skipped"]}
    _judge(domain, images, reasons, strict)
    pixels = np.memmap(place / "pixels.u8", np.uint8, "r", shape=(facts["count"], size, size, 3))
    return _without(domain, images, reasons, pixels)


def pack_path(
    domain: Domain,
    size: int,
    cache: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Where the pack of a domain lies, or will."""
    name = f"{content_key(domain, cache, workers, progress)}-{size}-v{VERSION}"
    return cache_folder(cache) / "packs" / name


def unpacked(
    domain: Domain,
    size: int,
    strict: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Packed:
    """The same as `pack`, bit for bit, without a cache: originals are decoded when they are asked for."""
    images = domain.items
    if not isinstance(images, Undecoded):
        return Packed(domain, [])
    results = in_parallel(lambda i: _try_read(images, i, size), len(images), workers, progress)
    reasons = {position: result for position, result in enumerate(results) if isinstance(result, str)}
    _judge(domain, images, reasons, strict)
    kept = [position for position in range(len(images)) if position not in reasons]
    return _without(domain, images, reasons, Decoder(part_of(images, kept), size, workers))


def content_key(
    domain: Domain,
    cache: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> str:
    """A name for the images of a domain: equal for equal bytes in equal order, whatever labels and names.

    Files are read once; as long as their sizes and times stay, the key is then taken from the cache. Images that a
    program holds are read once in the life of the process.
    """
    items = domain.items
    if isinstance(items, Decoder):
        return _digest([_images_key(items.images, cache, workers, progress).encode(), str(items.size).encode()])
    if isinstance(items, Undecoded):
        return _images_key(items, cache, workers, progress)
    return _digest(_array_bytes(items))


def _images_key(images: Undecoded, cache: str | Path | None, workers: int | None, progress: Progress | None) -> str:
    if isinstance(images, Files):
        return _files_key(images, cache, workers, progress)
    if images not in _KEYS:
        _KEYS[images] = _content(images, workers, progress)
    return _KEYS[images]


def _files_key(files: Files, cache: str | Path | None, workers: int | None, progress: Progress | None) -> str:
    stat_key = _digest(_stat_line(files, i) for i in range(len(files)))
    memo = cache_folder(cache) / "keys" / stat_key
    with suppress(OSError, ValueError):
        key, check = read_regular(memo, 1_000).decode("ascii").split()
        if check == digest([stat_key, key]):  # a damaged or foreign one would make other images look like these
            return key
    key = _content(files, workers, progress)
    with suppress(CannotWrite):  # a key that cannot be kept is only slower
        write_atomically(memo, f"{key} {digest([stat_key, key])}")
    return key


def _content(images: Undecoded, workers: int | None, progress: Progress | None) -> str:
    """Read all images and name what they hold."""

    def one(position: int) -> bytes:
        try:
            return image_digest(fetch(images, position))
        except Unreadable:
            return b"\0" * 16

    return _digest(in_parallel(one, len(images), workers, progress))


def _stat_line(files: Files, position: int) -> bytes:
    """What tells that a file is untouched.

    The root is not in it, so that a folder may be moved; the time at which its entry changed is, because
    archives may give all files one time of modification.
    """
    try:
        stat = os.stat(files.path(position))
    except (OSError, ValueError):  # or a name that no file can have
        return f"{files.names[position]}\0missing\n".encode(errors="surrogateescape")
    facts = f"{files.names[position]}\0{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}\n"
    return facts.encode(errors="surrogateescape")


def _array_bytes(items: Items) -> Iterator[bytes]:
    yield f"{items.dtype.str} {items.shape}".encode()
    for start in range(0, len(items), 4096):
        rows = np.arange(start, min(start + 4096, len(items)))
        yield np.ascontiguousarray(items[rows]).tobytes()


def _digest(parts: Iterable[bytes]) -> str:
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        total.update(part)
    return total.hexdigest()


def _try_read(images: Undecoded, position: int, size: int) -> Pixels | str:
    """The image, or why there is none."""
    try:
        return decode(fetch(images, position), size)
    except Unreadable as error:
        return str(error)


def _write(folder: Path, images: Undecoded, size: int, workers: int | None, progress: Progress | None) -> Json:
    """Write the pixels of a pack. Plain writes, not a writable map: a full disk is then an error and not a crash."""
    skipped: list[tuple[int, str]] = []
    with (folder / "pixels.u8").open("wb") as out:
        results = in_parallel(lambda i: _try_read(images, i, size), len(images), workers, progress)
        for position, result in enumerate(results):
            if isinstance(result, str):
                skipped.append((position, result))
            else:
                out.write(result.data)
    return {"count": len(images) - len(skipped), "size": size, "skipped": skipped}


def _judge(domain: Domain, images: Undecoded, reasons: dict[int, str], strict: bool) -> None:
    """Stop where nothing can be read, or nothing of a class, or under ``strict`` where anything cannot."""
    if reasons and (strict or len(reasons) == len(images)):
        count = "none" if len(reasons) == len(images) else f"{len(reasons)}"
        shown = "; ".join(f"{images.where(i)}: {reason}" for i, reason in list(reasons.items())[:5])
        verb = "can" if count == "none" else "cannot"
        raise CosdaError(
            f"{count} of the {len(images)} images of {domain.name} {verb} be read ({shown}). "
            f"Repair or remove them; 'cosda doctor' lists all."
        )
    if domain.labels is None or not reasons:
        return
    unreadable = np.bincount(domain.labels[list(reasons)])
    lost = (unreadable > 0) & (unreadable == np.bincount(domain.labels)[: len(unreadable)])
    for position, reason in reasons.items():
        if lost[label := domain.labels[position]]:
            raise CosdaError(
                f"{domain.name} would lose a class: none of its {unreadable[label]} images can be read "
                f"({images.where(position)}: {reason}). Repair them, or remove the class."
            )


def _without(domain: Domain, images: Undecoded, reasons: dict[int, str], items: Items) -> Packed:
    """The domain with decoded items, its labels and splits without the images that were left out."""
    kept = np.array([i for i in range(len(images)) if i not in reasons], np.int64)
    moved = np.full(len(images), -1, np.int64)
    moved[kept] = np.arange(len(kept))

    def follow(positions: Index) -> Index:
        return moved[positions][moved[positions] >= 0]

    labels = None if domain.labels is None else domain.labels[kept]
    whole = replace(domain, items=items, labels=labels, train=follow(domain.train), test=follow(domain.test))
    names = domain.names
    return Packed(whole, [(names[position], reason) for position, reason in reasons.items()])
