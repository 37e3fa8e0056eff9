"""Files that would fill memory or never end are refused before they are opened or unpacked."""

from __future__ import annotations

import io
import os
import struct
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cosda.data import decode as decoding
from cosda.data.decode import Unreadable, decode, read
from cosda.data.doctor import examine
from cosda.data.inputs import load_domain
from cosda.data.limits import CLASSES, MEGAPIXELS, Room
from cosda.errors import CosdaError


def png(width: int, height: int) -> bytes:
    """An image that claims a size, and has no pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", b"")
    )


def jpeg(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (8, 8)).save(out, "JPEG")
    data = bytearray(out.getvalue())
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", height, width)
    return bytes(data)


@pytest.mark.parametrize("make", [png, jpeg])
@pytest.mark.parametrize("side", [9_100, 12_000, 60_000])
def test_an_image_of_too_many_pixels_is_left_out_with_a_reason(make, side):
    with pytest.raises(Unreadable, match=r"too large: .* megapixels.*COSDA_MAX_MEGAPIXELS"):
        decode(make(side, side), 8)


def test_the_limit_can_be_changed(monkeypatch):
    data = io.BytesIO()
    Image.new("RGB", (1200, 1000), "red").save(data, "PNG")
    assert decode(data.getvalue(), 8).max() == 255
    monkeypatch.setenv("COSDA_MAX_MEGAPIXELS", "1")
    with pytest.raises(Unreadable, match=r"1.2 megapixels, and the limit is 1\. "):
        decode(data.getvalue(), 8)
    monkeypatch.setenv("COSDA_MAX_MEGAPIXELS", "many")
    with pytest.raises(CosdaError, match="COSDA_MAX_MEGAPIXELS must be a whole number"):
        decode(data.getvalue(), 8)


def test_only_the_formats_of_images_are_opened():
    """Pillow would start Ghostscript for this one, whatever the file is called."""
    with pytest.raises(Unreadable, match="not an image in a known format"):
        decode(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", 8)


def test_images_that_are_decoded_at_a_time_fit_into_the_room(monkeypatch):
    monkeypatch.setenv("COSDA_MAX_MEGAPIXELS", "1")
    room, inside, most, lock = Room(), [0], [0], threading.Lock()

    def work() -> None:
        for _ in range(50):
            with room.taken(400_000):
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                with lock:
                    inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] <= 2
    with room.taken(10**9):  # larger than all the room: alone
        pass


@pytest.mark.parametrize("name", ["x.png", "x.csv", "x.txt", "x.npz"])
def test_a_pipe_or_a_device_is_no_data(tmp_path, name):
    for make in (lambda path: os.mkfifo(path), lambda path: path.symlink_to("/dev/zero")):
        path = tmp_path / name
        make(path)
        if name == "x.png":
            with pytest.raises(Unreadable, match="a pipe or a device"):
                read(path, 8)
        else:
            with pytest.raises(CosdaError, match="a pipe or a device"):
                load_domain(path)
            assert not examine(path).ok
        path.unlink()


def test_a_pipe_among_images_is_one_unreadable_image(tmp_path, draw):
    draw(tmp_path / "site/cat/0.png")
    os.mkfifo(tmp_path / "site/cat/1.png")
    findings = examine(tmp_path / "site")
    assert findings.unreadable == [
        ("site: cat/1.png", "the file cannot be read: it is a pipe or a device and not a file")
    ]


def test_a_huge_file_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setenv("COSDA_MAX_MEGAPIXELS", "1")
    monkeypatch.setenv("COSDA_MAX_LIST_MIB", "1")
    for name in ("x.png", "x.csv", "x.txt"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 10**12)
    with pytest.raises(Unreadable, match=r"it has 931.3 GiB, and 4 MiB is the limit"):
        read(tmp_path / "x.png", 8)
    for name in ("x.csv", "x.txt"):
        with pytest.raises(CosdaError, match=r"931.3 GiB, and 1 MiB is the limit"):
            load_domain(tmp_path / name)


def test_labels_that_make_too_many_classes_are_refused_before_the_list_of_them(monkeypatch):
    rows = np.ones((2, 3), np.float32)
    monkeypatch.setenv(CLASSES.variable, "7")
    load_domain({"features": rows, "labels": np.array([0, 6])})
    with pytest.raises(CosdaError, match=r"its labels make 8 classes, and the limit is 7"):
        load_domain({"features": rows, "labels": np.array([0, 7])})


def test_the_limit_on_pixels_is_below_pillows():
    assert Image.MAX_IMAGE_PIXELS is None or MEGAPIXELS.default * 10**6 < Image.MAX_IMAGE_PIXELS
    assert set(decoding._FORMATS) <= set(Image.registered_extensions().values())


def test_a_folder_named_like_an_image_is_unreadable(tmp_path: Path):
    with pytest.raises(Unreadable, match="Is a directory"):
        read(tmp_path, 8)
