"""Files and folders that are there as a whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os

import pytest

from cosda.files import as_text, csv_text, read_regular, safe_name, write_atomically, write_json


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


@pytest.mark.parametrize("call", ["fsync", "rename", "replace"])
@pytest.mark.parametrize("kind", ["file", "folder"])
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
            with pytest.raises(OSError, match="disk full"):
                write_atomically(place, other)
    kept = place if kind == "file" else place / "inner" / "file"
    assert kept.read_text() == "old"
    assert os.listdir(tmp_path) == [kind]


def test_a_folder_comes_back_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    write_atomically(tmp_path / "folder", fill("old"))
    rename, calls = os.rename, []

    def busy(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise OSError("busy")
        rename(source, target)

    monkeypatch.setattr("cosda.files.os.rename", busy)
    with pytest.raises(OSError, match="busy"):
        write_atomically(tmp_path / "folder", fill("new"))
    assert (tmp_path / "folder" / "inner" / "file").read_text() == "old"
    assert os.listdir(tmp_path) == ["folder"]


def test_what_a_killed_process_of_the_same_number_left_is_no_obstacle(tmp_path):
    left = tmp_path / f".folder.{os.getpid()}.tmp"
    left.mkdir()
    (left / "half").write_text("")
    write_atomically(tmp_path / "folder", fill("whole"))
    assert os.listdir(tmp_path / "folder") == ["inner"]


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
