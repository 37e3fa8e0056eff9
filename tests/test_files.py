"""Files and folders that are there as a whole or not at all."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import sys

import pytest

from cosda.errors import CannotWrite, in_words, refusal
from cosda.files import (
    as_text,
    check_file,
    check_folder,
    csv_text,
    own_name,
    read_regular,
    safe_name,
    write_atomically,
    write_json,
    writing,
)


def test_bytes_text_and_json_are_written_to_a_path_given_as_text(tmp_path):
    place = tmp_path / "new" / "file"
    assert write_atomically(str(place), b"bytes") == place
    assert place.read_bytes() == b"bytes"
    write_atomically(place, "täxt")
    assert place.read_text(encoding="utf-8") == "täxt"
    write_json(place, {"ä": [1]})
    assert json.loads(place.read_text(encoding="utf-8")) == {"ä": [1]}
    assert os.listdir(place.parent) == ["file"]


def fill(content):
    def make(folder):
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "file").write_text(content)

    return make


def test_a_function_makes_a_file_or_a_folder(tmp_path):
    write_atomically(tmp_path / "file", lambda path: path.write_text("made"))
    assert (tmp_path / "file").read_text() == "made"
    for content in ("old", "new"):
        write_atomically(tmp_path / "folder", fill(content))
        assert (tmp_path / "folder" / "inner" / "file").read_text() == content
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


@pytest.fixture
def no_exchange(monkeypatch):
    """As on systems that cannot let two folders change places in one step."""
    monkeypatch.setattr("cosda.files._exchange", lambda one, other: False)


@pytest.mark.parametrize("call", ["fsync", "rename", "replace"])
@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.usefixtures("no_exchange")
def test_what_fails_leaves_the_old_one_and_nothing_else(tmp_path, monkeypatch, kind, call):
    place = tmp_path / kind
    content = {"file": lambda path: path.write_text("old"), "folder": fill("old")}[kind]
    write_atomically(place, content)

    def full(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(f"cosda.files.os.{call}", full)
        other = {"file": lambda path: path.write_text("new"), "folder": fill("new")}[kind]
        if call == {"file": "rename", "folder": "replace"}[kind]:  # the one that is not used
            write_atomically(place, content)
        else:
            with pytest.raises(CannotWrite, match="disk full"):
                write_atomically(place, other)
    kept = place if kind == "file" else place / "inner" / "file"
    assert kept.read_text() == "old"
    assert os.listdir(tmp_path) == [kind]


@pytest.mark.usefixtures("no_exchange")
def test_a_folder_comes_back_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    write_atomically(tmp_path / "folder", fill("old"))
    rename, calls = os.rename, []

    def busy(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError("busy")
        rename(source, target)

    monkeypatch.setattr("cosda.files.os.rename", busy)
    with pytest.raises(CannotWrite, match="busy"):
        write_atomically(tmp_path / "folder", fill("new"))
    assert (tmp_path / "folder" / "inner" / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["folder"]


def test_what_killed_processes_left_goes_and_what_others_are_writing_stays(tmp_path):
    begin = own_name(".folder.").removesuffix(str(os.getpid()))
    for number in (os.getpid(), 2**22 + 1):  # more than Linux ever gives
        left = tmp_path / f"{begin}{number}.tmp"
        left.mkdir()
        (left / "half").write_text("")
    alive = tmp_path / f"{begin}{os.getppid()}.tmp"
    alive.mkdir()
    write_atomically(tmp_path / "folder", fill("whole"))
    assert os.listdir(tmp_path / "folder") == ["inner"]
    assert sorted(os.listdir(tmp_path)) == sorted([alive.name, "folder"])


# --- what a system refuses ------------------------------------------------------------------------------------------

REFUSALS = {
    errno.ENOSPC: "No space left on device. Make room there",
    errno.EDQUOT: "Make room there",
    errno.EROFS: "Read-only file system. Choose another place",
    errno.EACCES: "Permission denied. Choose another place",
    errno.EIO: "The disk or network drive does not answer. Repeat the command when it does",
    errno.ESTALE: "does not answer",
    errno.ENOENT: "is the drive still mounted",
    errno.EMFILE: "ulimit -n",
}


@pytest.mark.parametrize("number", REFUSALS)
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_refusal_says_where_why_and_what_to_do_and_keeps_what_was_there(tmp_path, monkeypatch, kind, number):
    place = tmp_path / kind
    old, new = ({"file": content, "folder": fill(content)}[kind] for content in ("old", "new"))
    write_atomically(place, old)

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr("cosda.files.os.fsync", refuse)
        with pytest.raises(CannotWrite, match=REFUSALS[number]) as caught:
            write_atomically(place, new)
    assert str(caught.value).startswith(f"cannot write {place}: ")
    assert "\n" not in str(caught.value)
    assert (place if kind == "file" else place / "inner" / "file").read_text() == "old"
    assert os.listdir(tmp_path) == [kind]


def test_libraries_that_speak_of_the_system_in_their_own_way_are_understood(tmp_path):
    import torch
    from safetensors.torch import save_file

    (tmp_path / "file").touch()
    with (
        pytest.raises(CannotWrite, match=r"file/x: Not a directory\. A file stands where a folder must be"),
        writing(tmp_path / "file" / "x"),
    ):
        save_file({"a": torch.zeros(1)}, str(tmp_path / "file" / "x"))
    for error in (
        MemoryError(),
        RuntimeError("CPU: can't allocate memory: you tried"),
        OSError(12, ""),
    ):
        found = refusal(error)
        assert found is not None
        assert "--batch-size" in in_words(found)
    assert refusal(RuntimeError("shapes do not match")) is None


def test_other_errors_of_the_content_stay_what_they_are(tmp_path):
    def wrong(path):
        path.write_text("half")
        raise KeyError("mine")

    with pytest.raises(KeyError):
        write_atomically(tmp_path / "file", wrong)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two folders in one step")
def test_a_folder_is_never_missing_while_it_is_replaced(tmp_path, monkeypatch):
    write_atomically(tmp_path / "folder", fill("old"))
    monkeypatch.setattr("cosda.files.os.rename", None)  # putting the old one aside would leave a moment without any
    write_atomically(tmp_path / "folder", fill("new"))
    assert (tmp_path / "folder" / "inner" / "file").read_text() == "new"
    assert os.listdir(tmp_path) == ["folder"]


def test_behind_a_link_no_device_is_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(CannotWrite, match=f"cannot write .*{name}: it is a pipe or a device"):
            write_atomically(tmp_path / name, "x")
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_a_link_in_a_circle_is_replaced(tmp_path):
    (tmp_path / "x").symlink_to("x")
    write_atomically(tmp_path / "x", "new")
    assert (tmp_path / "x").read_text() == "new"
    assert os.listdir(tmp_path) == ["x"]


def test_behind_a_link_it_is_the_file_that_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "file")
    write_atomically(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").read_text() == "text"
    assert os.listdir(tmp_path / "real") == ["file"]


def test_what_cannot_be_written_later_is_known_before(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    check_folder(tmp_path / "new" / "below")
    check_file(tmp_path / "new" / "file")
    check_file(tmp_path / "file")
    assert sorted(os.listdir(tmp_path)) == ["file", "pipe"]
    for check, path, reason in (
        (check_folder, tmp_path / "file", "is a file"),
        (check_folder, tmp_path / "file" / "below", "is a file"),
        (check_file, tmp_path / "file" / "x.csv", "is a file"),
        (check_file, tmp_path, "Is a directory"),
        (check_file, tmp_path / "pipe", "a pipe or a device"),
        (check_folder, tmp_path / ("x" * 300), "File name too long"),
    ):
        with pytest.raises(CannotWrite, match=reason):
            check(path)
    with pytest.raises(CannotWrite, match=r"are free, and at least .* are needed"):
        check_folder(tmp_path / "new", needed=2**62)
    monkeypatch.setattr("cosda.files.os.access", lambda *_: False)  # root may do everything
    with pytest.raises(CannotWrite, match="Permission denied"):
        check_folder(tmp_path / "new")


# --- names ------------------------------------------------------------------------------------------------------------

HOSTILE = [
    "../../ESCAPED", "/etc", "a/b", "a\\b", "", ".", "..", "...", ".hidden", "a.", "a ", "CON", "nul.txt", "com1",
    "x" * 300, "é" * 200, "𝔘" * 100, "a\0b", "a\nb", "\x1b[31m", "a\udcffb", "a:b", "a*?", "a|b", "\u2028",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_from_data_never_leads_elsewhere(tmp_path, name):
    safe = safe_name(name)
    place = tmp_path / f"x-{safe}.lock"
    place.touch()
    assert os.listdir(tmp_path) == [place.name]
    assert (tmp_path / safe).parent == tmp_path
    assert safe not in ("", ".", "..")
    assert len(safe.encode()) <= 120
    assert safe.isprintable()
    assert safe.split(".")[0].split("~")[0].upper() not in ("CON", "NUL", "COM1")
    assert safe == safe_name(name)


def test_usual_names_stay_and_unusual_ones_stay_apart():
    for name in ("Real World", "office31", "überall", "日本", "a.b-c_d", "~x"):
        assert safe_name(name) == name
    assert len({safe_name(name) for name in HOSTILE}) == len(HOSTILE)
    assert len({safe_name("x" * 300 + letter) for letter in "abc"}) == 3


def test_text_can_be_written_and_does_not_steer_a_terminal():
    assert as_text("grün 日本 👍") == "grün 日本 👍"
    assert as_text("a\u202eb\u2066") == "a\\u202eb\\u2066"
    assert as_text("a\udcffb\x1b[0m\n\u2028") == "a\\xffb\\x1b[0m\\x0a\\u2028"


# --- CSV --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["=1+1", "+cmd", "-cmd|' /C calc'!A0", "@SUM(A1)", " =1", "＝1", "-", "-1+A1"])
def test_formulas_are_escaped(cell):
    [[found]] = csv.reader(io.StringIO(csv_text([[cell]]), newline=""))
    assert found == f"'{cell}"


@pytest.mark.parametrize(
    "cell", ["-0.5", "+1", "1e-05", "-1e-05", "-0.1 -0.2", "-inf", "nan", "", "a=b", "a/b.png", "a,b"]
)
def test_numbers_and_usual_text_stay_as_they_are(cell):
    [[found]] = csv.reader(io.StringIO(csv_text([[cell]]), newline="")) if cell else [[""]]
    assert found == cell


def test_a_cell_has_one_line():
    assert csv_text([["\r=1", "a\nb"]]) == "\\x0d=1,a\\x0ab\n"


# --- files ------------------------------------------------------------------------------------------------------------


def test_pipes_devices_and_folders_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path):
        with pytest.raises(OSError, match=r"pipe or a device|directory"):
            read_regular(path, 10)


def test_a_file_is_read_up_to_a_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match="it has 5 B, and 4 B is the limit"):
        read_regular(tmp_path / "file", 4)
