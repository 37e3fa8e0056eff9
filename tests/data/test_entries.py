"""Nothing of the cache is believed that does not fit; what does not fit is made again."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from cosda.data import entries
from cosda.data.cache import content_key, pack, unpacked
from cosda.data.domain import everything
from cosda.data.entries import fault_of, prune, read_entry, survey
from cosda.data.inputs import load_domain


@pytest.fixture
def two(tmp_path, tree) -> tuple[Path, Path]:
    """Two domains with other images, of the same number."""
    tree(tmp_path / "all", "one/a", "two/a", count=3)
    return tmp_path / "all" / "one", tmp_path / "all" / "two"


def pixels(site: Path) -> np.ndarray:
    return np.array(pack(load_domain(site), 16).domain.items)


def true_pixels(site: Path) -> np.ndarray:
    return unpacked(load_domain(site), 16).domain.items[everything(3)]


def only(cache: Path, pattern: str) -> Path:
    (found,) = cache.glob(pattern)
    return found


def forget() -> None:
    """What a new process would know."""
    entries._seen.clear()


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"0" * 32, b"nonsense words here", b"a b"])
def test_a_damaged_key_does_not_give_all_domains_the_same_pixels(two, cache, content):
    keys = [content_key(load_domain(site)) for site in two]
    for memo in cache.glob("keys/*"):
        memo.write_bytes(content)
    for site, key in zip(two, keys, strict=True):
        assert content_key(load_domain(site)) == key
        assert np.array_equal(pixels(site), true_pixels(site))


def test_a_key_of_other_images_is_not_taken(two, cache):
    one, other = (content_key(load_domain(site)) for site in two)
    first, second = cache.glob("keys/*")
    shutil.copy(first, second)
    assert {content_key(load_domain(site)) for site in two} == {one, other}


def flip(file: Path, keep_times: bool) -> None:
    stat = file.stat()
    with file.open("r+b") as opened:
        opened.seek(100)
        byte = opened.read(1)[0] ^ 1
        opened.seek(100)
        opened.write(bytes([byte]))
    if keep_times:
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize("keep_times", [False, True])
def test_a_flipped_byte_is_noticed_and_the_pack_made_again(two, cache, keep_times):
    first = pixels(two[0])
    flip(only(cache, "packs/*/pixels.u8"), keep_times)
    assert fault_of(only(cache, "packs/*")) == "pixels.u8 has other bytes than when it was written"
    assert np.array_equal(pixels(two[0]), first)
    assert fault_of(only(cache, "packs/*"), thorough=True) == ""


def test_bytes_that_change_behind_the_systems_back_are_found_by_a_thorough_look(two, cache, monkeypatch):
    pixels(two[0])
    monkeypatch.setattr(entries, "_stamp", lambda files: "untouched")
    place = only(cache, "packs/*")
    assert fault_of(place) == ""  # hashed once more, as the stamp is another one
    flip(place / "pixels.u8", keep_times=True)
    assert fault_of(place) == ""
    assert [entry.fault for entry in survey(cache)] == ["pixels.u8 has other bytes than when it was written"]


def rewrite(place: Path, **changes: object) -> None:
    described = json.loads((place / "entry.json").read_text())
    (place / "entry.json").write_text(json.dumps(described | changes))


DAMAGES = {
    "empty": lambda place: (place / "entry.json").write_text(""),
    "other facts": lambda place: rewrite(place, facts={"count": 2, "size": 16, "skipped": []}),
    "no files": lambda place: rewrite(place, files={}),
    "a list": lambda place: (place / "entry.json").write_text("[]"),
    "no entry.json": lambda place: (place / "entry.json").unlink(),
    "no pixels": lambda place: (place / "pixels.u8").unlink(),
    "truncated": lambda place: os.truncate(place / "pixels.u8", 100),
    "longer": lambda place: os.truncate(place / "pixels.u8", 10_000),
    "of an older version": lambda place: (place / "entry.json").rename(place / "pack.json"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_made_again(two, cache, damage):
    first = pixels(two[0])
    DAMAGES[damage](only(cache, "packs/*"))
    assert read_entry(only(cache, "packs/*")) is None
    assert np.array_equal(pixels(two[0]), first)


def test_an_entry_under_another_name_is_not_taken(two, cache):
    pixels(two[0])
    mine = only(cache, "packs/*")
    pixels(two[1])
    theirs = next(place for place in cache.glob("packs/*") if place != mine)
    shutil.rmtree(theirs)
    shutil.copytree(mine, theirs)
    assert np.array_equal(pixels(two[1]), true_pixels(two[1]))


def test_untouched_files_are_hashed_once_and_not_in_each_process(two, cache, monkeypatch):
    pixels(two[0])
    forget()
    monkeypatch.setattr(entries, "_hash", None)  # would raise
    pixels(two[0])


def test_a_cache_that_was_copied_is_hashed_and_then_believed(two, cache, tmp_path, monkeypatch):
    first = pixels(two[0])
    shutil.copytree(cache, tmp_path / "copy")
    forget()
    hashed = []
    real = entries._hash
    monkeypatch.setattr(entries, "_hash", lambda file: hashed.append(file.name) or real(file))
    for _ in range(2):
        assert np.array_equal(pack(load_domain(two[0]), 16, tmp_path / "copy").domain.items, first)
        forget()
    assert hashed == ["pixels.u8"]


def test_a_survey_sees_everything_and_pruning_removes_what_does_not_fit(two, cache):
    for site in two:
        pixels(site)
    good, bad = sorted(cache.glob("packs/*"))
    os.truncate(bad / "pixels.u8", 5)
    (cache / "features").mkdir()
    (cache / "features" / "0123456789.npy").write_bytes(b"of an older version")
    (cache / "packs" / f"{'0' * 32}-8-v1.partial").mkdir()
    (cache / "packs" / "somebody's own").mkdir()
    faults = {entry.path.name: entry.fault for entry in survey(cache)}
    assert faults.pop(good.name) == ""
    assert len(faults) == 3
    assert all(faults.values())
    assert {entry.path.name for entry in prune(cache, dry=True)} == set(faults)
    assert bad.exists()
    prune(cache)
    assert sorted(place.name for place in cache.glob("packs/*")) == sorted([good.name, "somebody's own"])
    assert not list(cache.glob("features/*"))


def test_pruning_takes_what_nobody_used_and_leaves_what_is_being_made(two, cache):
    for site in two:
        pixels(site)
    old, new = sorted(cache.glob("packs/*"))
    os.utime(old / "seen", (0, 0))
    partial = cache / "packs" / f"{'0' * 32}-8-v1.partial"
    partial.mkdir()
    with FileLock(cache / "locks" / f"{partial.stem}.lock"):
        assert [entry.path for entry in survey(cache)] == [old, new]
        assert [entry.path for entry in prune(cache, unused_days=30)] == [old]  # to look at it is not to use it
    assert partial.exists()


def test_using_an_entry_makes_it_new(two, cache):
    pixels(two[0])
    seen = only(cache, "packs/*/seen")
    os.utime(seen, (0, 0))
    pixels(two[0])
    assert seen.stat().st_mtime > 0
