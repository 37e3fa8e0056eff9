"""Whatever stands on the command line: options of every command with any words, settings of any value."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import typer
from corpus import WORDS
from hypothesis import given
from hypothesis import strategies as st
from making import SEEDS, place

from cosda.__main__ import app
from cosda.config.schema import SECTIONS
from cosda.methods import METHODS
from cosda.settings import settings_of

GROUP = typer.main.get_command(app)
COMMANDS = GROUP.commands  # type: ignore[attr-defined]
KEYS = [f"{section}.{key}" for section, kind in SECTIONS.items() for key in settings_of(kind)]
KEYS += sorted({key for name in METHODS for key in settings_of(METHODS.find(name))})
LONG = ("epochs", "steps", "passes")  # what may well be asked for, and then takes its time
NUMBERS = (
    "0",
    "1",
    "2",
    "-1",
    "0.5",
    "1e-9",
    "-0.0",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "true",
    "none",
    "٣",
    "0x10",
    "1_0",
)
ABSURD = ("1e9", "1000000000", "99999999999", "1e300", "1" * 30, "9" * 5000, f"-{'9' * 5000}")
TEXTS = (
    "", " ", "=", "==", "x", "all", "last", "bank", "bank=4", "bank=0", "along=0.5", "auto", "a,b", ",,,", "one,two",
    "one>two", "two>one,one>one", "default", "A2C", "print", "aad", "cosda", "source,aad", "shot++", "csv", "json",
    "[" * 3000, "{" * 3000, "[1,2]", "[0.1, 0.2]", "{a = 1}", '{"a": 1}', "2026-11-19", "12:00:00", '"', "'''", '"""x',
    "a = 1\nb = 2", "\n", "\r\t", "\x1b[31m", "ä", "\udcff", "\u202e", "x" * 9000, "../../up", "nowhere/x",
    "hf:org/none", "hf:", "hf:..", "hf:a/b/c", "hf:/etc", "timm/none", "identity:3", "identity:99999999999", "small",
    "resnet18", "nowhere:x", "math:pi", "os:nothing", ":", "json:loads", "0.1,0.2", "0.5", "0.1,0.2,0.3", "cpu", "cuda",
    "cuda:99", "meta", "bf16", "16", "64", "no-mi", "paper", "authors", "#", "x#y", "-", "--", "oracle", "together",
    "separate", "onnx", "torchscript", "html", "tex",
)  # fmt: skip
PLACES = (
    "new",
    "new.csv",
    "new.html",
    "data/file",
    "data",
    "data/file/x",
    "data/pipe",
    "x" * 300,
    "\x1b[1m",
    "ä\udcff.md",
)
WRITES = ("out", "model", "to", "output", "cache")  # options that name a place to write to
APART = ("compile", "engine", "address", "help", "version")  # a minute of compiling; clusters


def start(name: str, models: dict[str, Path], out: Path) -> list[str]:
    """A command that would work, and quickly."""
    root = models["images"].parent
    vectors, one = str(root / "vectors.npz"), f"{root / 'vectors.npz'}#one"
    few = ["--set", "source.epochs=0", "--set", "network.bottleneck=4", "--quiet"]
    model, bank = str(models["features"]), str(models["bank"])
    return {
        "demo": ["demo"],
        "doctor": ["doctor", vectors],
        "source": ["source", vectors, "--domain", "one", "--model", f"{out}/m", "--out", f"{out}/r", *few],
        "import": ["import", "weights.pth", "--to", f"{out}/m", "--build", "nets:classifier"],
        "adapt": ["adapt", model, one, "--to", f"{out}/m", "--out", f"{out}/r", "--epochs", "0", "--quiet"],
        "predict": ["predict", model, one, "--quiet"],
        "evaluate": ["evaluate", model, one, "--quiet"],
        "model": ["model", bank, "--to", f"{out}/m"],
        "profile": ["profile", model, one, "--to", f"{out}/m", "--quiet"],
        "monitor": ["monitor", bank, one, "--quiet"],
        "history": ["history", bank],
        "diff": ["diff", model, bank, one, "--quiet"],
        "export": ["export", model, "--to", f"{out}/m.pt", "--quiet"],
        "run": ["run", vectors, "--method", "source", "--out", f"{out}/r", "--epochs", "0", *few],
        "bench": ["bench", vectors, "--methods", "source,aad", "--dry-run", "--out", f"{out}/r", *few],
        "report": ["report", str(root / "runs"), "--output", f"{out}/report.md"],
        "compare": ["compare", *map(str, sorted((root / "runs").glob("*-s0-*"))[:1] * 2)],
        "methods": ["methods", "aad"],
        "cache": ["cache", "check", "--cache", f"{out}/c"],
    }[name]


def word(name: str, option: str, rng: random.Random, folder: Path) -> str:
    """Something for an option or an argument."""
    if option in WRITES and not (option == "model" and name == "run"):
        name = rng.choice(PLACES)
        return str(folder / name if name.startswith("data") else folder / "out" / name)
    if option == "set_":
        key = rng.choice((rng.choice(KEYS), rng.choice(KEYS).partition(".")[2], rng.choice(TEXTS)))
        long = any(part in key for part in LONG)
        value = rng.choice((*NUMBERS, *(() if long else ABSURD), *rng.sample(TEXTS, 20)))
        return f"{key}={value}"
    return rng.choice(rng.choice((NUMBERS, TEXTS, () if any(part in option for part in LONG) else ABSURD)) or TEXTS)


def test_the_start_of_every_command_is_known(models, tmp_path):
    """A new command comes into the fuzzer, or this fails."""
    assert [name for name in COMMANDS if not start(name, models, tmp_path)] == []


@pytest.mark.parametrize("case", WORDS)
def test_what_once_did_harm_does_none(server, models, tmp_path, case):
    vectors = str(models["images"].parent / "vectors.npz")
    known = {"VECTORS": vectors, "VECTORS#one": f"{vectors}#one", "MODEL": models["features"], "new": tmp_path / "x"}
    outcome = server.run(*(known.get(word, word) for word in WORDS[case])).check((2,))
    assert len(outcome.err.splitlines()) == 1 or outcome.err.startswith("Usage: ")


@given(st.sampled_from(list(COMMANDS)), SEEDS)
def test_words(server, models, runs, tmp_path_factory, name, rng):
    with place(tmp_path_factory.getbasetemp()) as folder:
        (folder / "data" / "file").write_text("mine")
        os.mkfifo(folder / "data" / "pipe")
        words = start(name, models, folder / "out")
        options = [p for p in COMMANDS[name].params if p.param_type_name == "option" and p.name not in APART]
        for option in rng.sample(options, min(rng.choice((1, 1, 2, 4)), len(options))):
            flag = rng.choice(option.opts)
            if option.is_flag:
                words.append(flag)
            else:
                words += [flag, word(name, option.name, rng, folder)]
        given_at = [at for at in range(1, len(words)) if not words[at].startswith("-") and at < 4]
        if given_at and rng.random() < 0.2:
            at = rng.choice(given_at)
            if words[at - 1] not in ("--to", "--out", "--model", "--output", "--cache"):
                words[at] = rng.choice(TEXTS)
        if name == "demo":  # a minute of work, if nothing is wrong with it
            words += ["--out", str(folder / "data" / "file" / "x")]
        if name == "bench":
            words += ["--dry-run"]
        server.run(*words).check((0, 2, 3, 4, 5) if name == "monitor" else (0, 2, 3))
        assert (folder / "data" / "pipe").is_fifo()
