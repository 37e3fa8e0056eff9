"""A wrong place to write to: one line, exit code 2, found before the work, so that nothing is written at all."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from events import SMALL, Events

WHERE = "OUT"  # stands for the wrong place
WRONG = {
    "run --out": ("run", "vectors.npz", "--method", "source", "--out", WHERE, *SMALL),
    "source --out": ("source", "vectors.npz", "--domain", "one", "--model", "new", "--out", WHERE, *SMALL),
    "source --model": ("source", "vectors.npz", "--domain", "one", "--model", WHERE, "--out", "new", *SMALL),
    "adapt --to": ("adapt", "model", "photos/two", "--to", WHERE, "--out", "new", *SMALL),
    "adapt --out": ("adapt", "model", "photos/two", "--to", "new", "--out", WHERE, *SMALL),
    "bench --out": ("bench", "vectors.npz", "--methods", "source", "--out", WHERE, *SMALL),
    "demo --out": ("demo", "--out", WHERE, "--quiet"),
    "predict --output": ("predict", "model", "photos/two", "--output", WHERE, "--quiet"),
    "diff --output": ("diff", "model", "model", "photos/two", "--output", f"{WHERE}.csv", "--quiet"),
    "report --output": ("report", "runs", "--output", WHERE, "--format", "md"),
    "import --to": ("import", "timm/resnet18", "--weights", "nothing.pth", "--to", WHERE),
    "profile --to": ("profile", "model", "photos/one", "--to", WHERE, "--quiet"),
    "model --to": ("model", "model", "--drop", "one", "--to", WHERE),
    "export --to": ("export", "model", "--to", WHERE, "--format", "onnx", "--quiet"),
    "predict --cache": ("predict", "model", "photos/two", "--cache", WHERE, "--quiet"),
    "evaluate --cache": ("evaluate", "model", "photos/two", "--cache", WHERE, "--quiet"),
    "monitor --cache": ("monitor", "model", "photos/two", "--cache", WHERE, "--quiet"),
}
READ = {
    "predict MODEL": ("predict", WHERE, "photos/two"),
    "evaluate MODEL": ("evaluate", WHERE, "photos/two"),
    "adapt MODEL": ("adapt", WHERE, "photos/two", "--to", "new", "--out", "new", *SMALL),
    "monitor MODEL": ("monitor", WHERE, "photos/two"),
    "history MODEL": ("history", WHERE),
    "model MODEL": ("model", WHERE),
    "export MODEL": ("export", WHERE, "--to", "new.onnx"),
    "profile MODEL": ("profile", WHERE, "photos/two"),
    "diff A": ("diff", WHERE, "model", "photos/two"),
    "report RUNS": ("report", WHERE, "--output", "new.md"),
    "compare RUN": ("compare", WHERE, WHERE),
    "doctor DATA": ("doctor", WHERE),
}
SOME = ("run --out", "adapt --to", "predict --output", "export --to", "history MODEL")


@contextlib.contextmanager
def mounted(place: Path, options: str) -> Iterator[Path]:
    """A small file system in memory, which only root may make."""
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def words(case: tuple[str, ...], made: Path, where: Path) -> list[str]:
    """The command, with paths to what was made."""
    known = ("vectors.npz", "model", "photos", "runs", "new", "new.onnx", "new.md")
    return [
        case[0],
        *(str(made / word) if word.split("/")[0] in known else word.replace(WHERE, str(where)) for word in case[1:]),
    ]


def refused(events: Events, made: Path, case: str, where: Path) -> str:
    """What the command says; it must not have written anything."""
    ended = events.run(made.parent, *words((WRONG | READ)[case], made, where)).check((2,))
    elsewhere = [event for event in ended.events if str(where.parent) not in event]  # there they fail
    assert not [event for event in elsewhere if "/cache/" not in event]
    assert ended.err.startswith("cosda: ") or case == "doctor DATA"
    return ended.err


@pytest.mark.parametrize("case", WRONG | READ)
def test_below_a_file(events: Events, made: Path, tmp_path: Path, case: str) -> None:
    (tmp_path / "file").write_text("mine")
    refused(events, made, case, tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("case", ["predict --output", "report --output", "export --to"])
def test_a_folder_where_a_file_is_to_be(events: Events, made: Path, tmp_path: Path, case: str) -> None:
    assert "folder" in refused(events, made, case, tmp_path)


@pytest.mark.parametrize("case", WRONG)
def test_a_file_system_that_is_read_only(events: Events, made: Path, tmp_path: Path, case: str) -> None:
    with mounted(tmp_path / "disk", "ro,size=1m") as disk:
        assert "Read-only file system" in refused(events, made, case, disk / "x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("case", SOME)
def test_a_folder_that_is_not_ours(events: Events, made: Path, tmp_path: Path, case: str) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    assert "Permission denied" in refused(events, made, case, tmp_path / "closed" / "x")
