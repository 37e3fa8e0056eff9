from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cosda.data import cache as packing
from cosda.data.benchmarks import load
from cosda.data.cache import content_key, pack, unpacked
from cosda.data.decode import Decoder, Unreadable, decode, read
from cosda.data.domain import Domain, Files, everything
from cosda.data.entries import default_cache
from cosda.data.inputs import load_domain
from cosda.errors import CosdaError
from waiting import HANG

OFFICE31 = Path(__file__).resolve().parents[3] / "shared" / "data" / "office31"


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def packs(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "packs").glob("*"))


@pytest.fixture
def site(tmp_path, tree) -> Path:
    return tree(tmp_path / "site", "cat", "dog", count=3)


# --- decoding --------------------------------------------------------------------------------------------------


def test_decoding_resizes_to_a_square_and_agrees_with_pillow():
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 256, (9, 12, 3), np.uint8)).resize((640, 480), Image.Resampling.BICUBIC)
    for kind in ("PNG", "JPEG", "WEBP", "BMP"):
        data = encoded(smooth, kind)
        whole = Image.open(io.BytesIO(data)).convert("RGB").resize((40, 40), Image.Resampling.BILINEAR)
        pixels = decode(data, 40)
        assert pixels.shape == (40, 40, 3)
        assert pixels.dtype == np.uint8
        assert np.abs(pixels.astype(int) - np.asarray(whole)).mean() < 1


def test_every_colour_mode_becomes_rgb():
    red = Image.new("RGB", (8, 8), (250, 10, 10))
    for image, kind in [
        (red, "PNG"),
        (red.convert("CMYK"), "JPEG"),
        (red.convert("P", palette=Image.Palette.ADAPTIVE), "GIF"),
        (red.convert("RGBA"), "PNG"),
    ]:
        assert np.abs(decode(encoded(image, kind), 8).astype(int) - [250, 10, 10]).max() < 12, (image.mode, kind)
    grey = Image.new("L", (8, 8), 100)
    assert (decode(encoded(grey, "PNG"), 8) == 100).all()
    assert (decode(encoded(grey, "JPEG"), 8) == 100).all()
    assert (decode(encoded(grey.convert("1"), "PNG"), 8)[..., 0] <= 255).all()
    deep = Image.fromarray(np.full((8, 8), 100 * 257, np.uint16))
    assert (decode(encoded(deep, "PNG"), 8) == 100).all()


def test_transparency_lies_on_white():
    clear = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    assert (decode(encoded(clear, "PNG"), 8) == 255).all()
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([0, 0, 0, 255, 0, 0])
    assert (decode(encoded(palette, "PNG", transparency=b"\x00\xff"), 8) == 255).all()


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_followed(kind, orientation):
    pixels = np.zeros((32, 32, 3), np.uint8)
    pixels[:16, :16] = 255  # white upper left corner
    image = Image.fromarray(pixels)
    exif = Image.Exif()
    exif[0x0112] = orientation
    bright = decode(encoded(image, kind, exif=exif.tobytes()), 32)[4::24, 4::24, 0] > 128
    corner = {1: (0, 0), 2: (0, 1), 3: (1, 1), 4: (1, 0), 5: (0, 0), 6: (0, 1), 7: (1, 1), 8: (1, 0)}[orientation]
    assert np.argwhere(bright).tolist() == [list(corner)]


def test_unreadable_images_have_a_reason(tmp_path):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    for data, reason in [
        (b"", "empty"),
        (b"no image", "not an image in a known format"),
        (encoded(noise, "JPEG")[:1500], "damaged"),
        (encoded(noise, "PNG")[:3000], "damaged"),
        (b"\xff\xd8 but no more", "not an image"),
        (encoded(Image.new("F", (4, 4)), "TIFF"), "32-bit"),
    ]:
        with pytest.raises(Unreadable, match=reason):
            decode(data, 8)
    with pytest.raises(Unreadable, match="missing"):
        read(tmp_path / "nothing.png", 8)
    with pytest.raises(Unreadable, match="cannot be read: Is a directory"):
        read(tmp_path, 8)


def test_bytes_after_the_end_of_a_jpeg_do_no_harm():
    data = encoded(Image.new("RGB", (16, 16), "red"), "JPEG")
    assert (decode(data + b"trailing", 16) == decode(data, 16)).all()


# --- the cache -------------------------------------------------------------------------------------------------


def test_packed_and_unpacked_have_the_same_bits(site, cache):
    domain = load_domain(site)
    seen: list[tuple[int, int]] = []
    packed = pack(domain, 16, progress=lambda done, total: seen.append((done, total))).domain
    loose = unpacked(domain, 16).domain
    assert isinstance(packed.items, np.memmap)
    assert not packed.items.flags.writeable
    assert isinstance(loose.items, Decoder)
    assert packed.items.shape == loose.items.shape == (6, 16, 16, 3)
    assert packed.items.dtype == loose.items.dtype
    for index in (np.array([5, 0, 0, 3]), np.array([], np.int64), np.arange(6)):
        assert np.array_equal(packed.items[index], loose.items[index])
    assert packed.labels.tolist() == loose.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert seen[-1] == (6, 6)


def test_a_pack_is_made_once_and_a_warm_start_reads_no_image(site, cache, monkeypatch):
    first = pack(load_domain(site), 16).domain.items
    monkeypatch.setattr(packing, "fetch", None)
    assert np.array_equal(pack(load_domain(site), 16).domain.items, first)
    assert len(packs(cache)) == 1


def test_each_size_and_each_content_has_its_own_pack(site, cache, draw):
    domain = load_domain(site)
    before = content_key(domain)
    pack(domain, 16)
    pack(domain, 8)
    assert len(packs(cache)) == 2
    draw(site / "cat/0.png", seed=99)  # same name, new content
    changed = pack(load_domain(site), 16).domain
    assert content_key(load_domain(site)) != before
    assert len(packs(cache)) == 3
    assert np.array_equal(changed.items[:1][0], read(site / "cat/0.png", 16))


def test_a_moved_copied_or_renamed_folder_finds_its_pack(site, cache, tmp_path, monkeypatch):
    key = content_key(load_domain(site))
    pack(load_domain(site), 16)
    shutil.copytree(site, tmp_path / "copy", copy_function=shutil.copyfile)  # with new times
    os.rename(site, tmp_path / "moved")
    os.rename(tmp_path / "moved/cat", tmp_path / "moved/a cat")
    monkeypatch.setattr(packing, "_write", None)
    for place in ("copy", "moved"):
        assert content_key(load_domain(tmp_path / place)) == key
        assert len(pack(load_domain(tmp_path / place), 16).domain) == 6


def test_the_key_of_arrays_is_their_content(site, cache):
    features = np.arange(12, dtype=np.float32).reshape(4, 3)
    domain = Domain("x", features, np.array([0, 1, 0, 1]), everything(4), everything(4))
    assert content_key(domain) == content_key(domain.without_labels())
    assert content_key(domain) == content_key(domain.with_labels_shuffled())
    assert content_key(domain) != content_key(Domain("x", features[::-1], None, everything(4), everything(4)))
    assert content_key(domain) != content_key(Domain("x", features.reshape(2, 6), None, everything(2), everything(2)))
    assert pack(domain, 16).domain is domain
    assert unpacked(domain, 16).domain is domain
    files = load_domain(site)
    assert content_key(unpacked(files, 8).domain) != content_key(unpacked(files, 16).domain)
    assert content_key(pack(files, 8).domain) == content_key(pack(files, 8).domain)


def damaged(site: Path) -> Domain:
    """Six images of which the second is damaged and the last is gone; a split that names both."""
    domain = load_domain(site)
    (site / "cat/1.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    (site / "dog/2.png").unlink()
    return Domain(domain.name, domain.items, domain.labels, np.array([0, 1, 2]), np.array([3, 5, 4]))


def test_corrupt_and_missing_images_are_left_out_everywhere(site, cache):
    domain = damaged(site)
    for result in (pack(domain, 16), pack(domain, 16), unpacked(domain, 16)):
        assert [name for name, _ in result.skipped] == ["cat/1.png", "dog/2.png"]
        assert result.skipped[1][1] == "the file is missing"
        left = result.domain
        assert len(left) == len(left.items) == 4
        assert left.labels.tolist() == [0, 0, 1, 1]
        assert left.train.tolist() == [0, 1]
        assert left.test.tolist() == [2, 3]
        assert np.array_equal(left.items[np.array([1])][0], read(site / "cat/2.png", 16))


def test_strict_stops_at_corrupt_images_and_names_them(site, cache):
    domain = damaged(site)
    for make in (pack, unpacked):
        with pytest.raises(CosdaError, match=r"2 of the 6 images of site cannot be read .*cat/1.png: "):
            make(domain, 16, strict=True)
    pack(domain, 16)
    with pytest.raises(CosdaError, match="cannot be read"):  # also from a finished pack
        pack(domain, 16, strict=True)


def test_nothing_but_corrupt_images_is_an_error(tmp_path, cache):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/a.jpg").write_bytes(b"")
    for make in (pack, unpacked):
        with pytest.raises(CosdaError, match="none of the 1 images of bad can be read"):
            make(load_domain(tmp_path / "bad"), 16)


def test_a_image_that_vanishes_later_is_named(site, cache):
    loose = unpacked(load_domain(site), 16).domain
    (site / "cat/0.png").unlink()
    with pytest.raises(CosdaError, match=r"cat/0.png could be read before and now cannot"):
        loose.items[np.array([0])]


def test_a_truncated_pack_is_made_again(site, cache):
    first = np.array(pack(load_domain(site), 16).domain.items)
    (pixels,) = cache.glob("packs/*/pixels.u8")
    os.truncate(pixels, 100)
    assert np.array_equal(pack(load_domain(site), 16).domain.items, first)


# --- kills, neighbours, full disks -----------------------------------------------------------------------------


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    prelude = "import os, signal, sys, time; from pathlib import Path\n"
    prelude += "from cosda.data import cache as packing; from cosda.data.inputs import load_domain\n"
    return subprocess.Popen(
        [sys.executable, "-c", prelude + code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


KILL = """
def die(done, total):
    if list(Path(sys.argv[2]).glob("packs/*.partial")) and done == 3:
        os.kill(os.getpid(), signal.SIGKILL)
packing.pack(load_domain(sys.argv[1]), int(sys.argv[3]), Path(sys.argv[2]), progress=die)
"""


def test_a_kill_in_the_middle_leaves_no_half_pack(site, cache):
    for size in (16, 24):
        process = start(KILL, site, cache, size)
        process.communicate(timeout=HANG)
        assert process.returncode == -signal.SIGKILL
    assert len(packs(cache)) == 1  # the second one swept what the first had left
    assert packs(cache)[0].endswith("-24-v1.partial")
    result = pack(load_domain(site), 24)
    assert len(result.domain) == 6
    assert np.array_equal(result.domain.items, unpacked(load_domain(site), 24).domain.items[everything(6)])
    pack(load_domain(site), 16)
    assert not [name for name in packs(cache) if name.endswith(".partial")]


TOGETHER = """
write = packing._write
def slow(*arguments):
    print("made", flush=True)
    time.sleep(0.5)
    return write(*arguments)
packing._write = slow
print(packing.pack(load_domain(sys.argv[1]), 16, Path(sys.argv[2])).domain.items.sum(), flush=True)
"""


def test_of_two_processes_one_makes_the_pack_and_the_other_uses_it(site, cache):
    both = [start(TOGETHER, site, cache) for _ in range(2)]
    outputs = [process.communicate(timeout=HANG) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    lines = [text.split() for text, _ in outputs]
    assert sorted(map(len, lines)) == [1, 2]  # one said "made"
    assert lines[0][-1] == lines[1][-1]


FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))  # writing more fails, as on a full disk
from cosda.errors import CosdaError
try:
    packing.pack(load_domain(sys.argv[1]), 64, Path(sys.argv[2]))
except CosdaError as error:
    print(error)
"""


def test_a_disk_that_fills_up_is_explained(site, cache):
    text, errors = start(FULL, site, cache).communicate(timeout=HANG)
    assert "cannot be written: File too large. Set COSDA_CACHE to another folder, or use --no-pack." in text, errors
    assert packs(cache) == []


def test_too_little_room_and_an_unwritable_cache_are_explained(site, cache, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(CosdaError, match=r"the cache .*file cannot be written: .*COSDA_CACHE"):
        pack(load_domain(site), 16, cache=tmp_path / "file")
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(CosdaError, match="has 0 MiB left"):
        pack(load_domain(site), 16)


def test_the_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("COSDA_CACHE", str(tmp_path))
    assert default_cache() == tmp_path
    monkeypatch.delenv("COSDA_CACHE")
    assert default_cache() == Path.home() / ".cache/cosda"


@pytest.mark.skipif(not OFFICE31.is_dir(), reason="the images of Office-31 are not here")
def test_real_images(cache):
    benchmark = load(OFFICE31)
    assert {domain.name: len(domain) for domain in benchmark} == {"amazon": 2817, "dslr": 498, "webcam": 795}
    assert len(benchmark.classes) == 31
    assert benchmark.notes == ()
    packed = pack(benchmark["dslr"], 64)
    assert packed.skipped == []
    some = np.arange(0, 498, 50)
    files = benchmark["dslr"].items
    assert isinstance(files, Files)
    assert np.array_equal(packed.domain.items[some], Decoder(files, 64)[some])
    assert json.loads(next(cache.glob("packs/*/entry.json")).read_text())["facts"]["count"] == 498
