"""Files and folders that are there as a whole or not at all."""

from __future__ import annotations

import json
import os

import pytest

from cosda.files import write_atomically, write_json


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
