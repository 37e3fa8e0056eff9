"""Run folders that are damaged or made up: they are named, and those beside them are shown as ever."""

from __future__ import annotations

import shutil

import pytest
from cases import CASES
from corpus import RUNS
from hypothesis import given
from hypothesis import strategies as st
from making import SEEDS, change_file, place

FEW = ("--epochs", "1", "--set", "source.epochs=1", "--set", "network.bottleneck=8", "--quiet")
COMMANDS = {
    "report html": lambda runs, bad, good, data, out: ("report", runs, "--output", out / "report.html"),
    "report md": lambda runs, bad, good, data, out: ("report", runs, "--output", out / "report.md"),
    "report csv": lambda runs, bad, good, data, out: ("report", bad, good, "--output", out / "report.csv"),
    "report tex": lambda runs, bad, good, data, out: ("report", bad, "--output", out / "report.tex"),
    "compare": lambda runs, bad, good, data, out: ("compare", bad, good),
    "compare --json": lambda runs, bad, good, data, out: ("compare", good, bad, "--json"),
    "methods --cost": lambda runs, bad, good, data, out: ("methods", "--cost", "--runs", runs),
    "methods --cost --json": lambda runs, bad, good, data, out: ("methods", "--cost", "--json", "--runs", runs),
    "bench": lambda runs, bad, good, data, out: (
        *("bench", data, "--methods", "nrc,aad", "--pairs", "one>two", "--out", runs, "--dry-run", *FEW),
    ),
    "run": lambda runs, bad, good, data, out: (
        *("run", data, "--method", "aad", "--carry", "bank", "--out", runs, "--json", *FEW),
    ),
    "evaluate": lambda runs, bad, good, data, out: ("evaluate", bad / "models" / "stage-1", f"{data}#two", "--quiet"),
    "history": lambda runs, bad, good, data, out: ("history", bad / "models" / "stage-1", "--json"),
    "model": lambda runs, bad, good, data, out: ("model", bad / "models" / "stage-1"),
}
OVER_OTHERS = ("report html", "report md", "report csv", "methods --cost", "methods --cost --json")


@pytest.mark.parametrize("case", RUNS)
def test_what_once_did_harm_does_none(server, runs, tmp_path, case):
    for kind in ("adapted", "aad") if CASES else ("aad",):
        for name in COMMANDS if CASES else ("report html", "methods --cost", "run"):
            with place(tmp_path) as folder:
                copy, bad, good = copied(runs, kind, folder)
                RUNS[case](bad)
                look(server, name, (copy, bad, good, runs.parent / "vectors.npz", folder / "out"))


@given(st.sampled_from(["adapted", "aad", "aad"]), st.sampled_from(list(COMMANDS)), SEEDS)
def test_run_folders(server, runs, tmp_path_factory, kind, command, rng):
    with place(tmp_path_factory.getbasetemp()) as folder:
        copy, bad, good = copied(runs, kind, folder)
        for _ in range(rng.randint(1, 2)):
            damage(bad, rng)
        look(server, command, (copy, bad, good, runs.parent / "vectors.npz", folder / "out"))


def copied(runs, kind, folder):
    """A copy of all run folders, the one that is to be damaged, and one that stays as it is."""
    copy = folder / "data" / "runs"
    shutil.copytree(runs, copy)
    names = {"adapted": "own-aad-*", "aad": "vectors-aad-*", "good": "vectors-nrc-*"}
    return copy, *(next(copy.glob(names[name])) for name in (kind, "good"))


def look(server, command, places):
    """Do a command; what looks at all runs shows the one that is whole."""
    outcome = server.run(*COMMANDS[command](*places)).check((0,) if command in OVER_OTHERS else (0, 2, 3))
    if command in OVER_OTHERS and not outcome.fault:
        written = [path.read_text() for path in places[-1].glob("report.*")]
        assert "nrc" in "".join([outcome.out, *written]).lower()


def damage(run, rng):
    """Change one of the files of a run folder; its own more often than those of its models."""
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.stat().st_size < 10**6)
    own = [path for path in files if "models" not in path.parts] or files
    if not own:
        return
    change_file(rng.choice(files) if rng.random() < 0.2 else rng.choice(own), rng)
