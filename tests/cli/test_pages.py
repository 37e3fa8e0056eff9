"""The tutorials, guides and concepts tell what is so: commands are possible, code runs, and what is quoted is said.

The tutorials are walked from their first line to their last, with fewer images and epochs. What takes long (training of
whole benchmarks, exporting) has its options checked and is not run; `test_story.py` exports.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import typer.main

import cosda as library
from cosda.__main__ import app
from cosda.config.request import Data, Request, parse_changes
from cosda.config.resolve import resolve
from cosda.methods import METHODS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [DOCS / "index.md", DOCS / "install.md", DOCS / "production.md"]
PAGES += [page for folder in ("tutorials", "guides", "concepts") for page in sorted((DOCS / folder).glob("*.md"))]
ELSEWHERE = {"export", "pip", "python", "."}  # what a page may ask the shell for, besides `cosda`
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> Iterator[list[str]]:
    """All lines for the shell, as words."""
    for block in blocks(page, "shell"):
        for line in block.splitlines():
            if words := shlex.split(re.sub(r"(^|\s)#.*", "", line)):  # within a word # is no comment: digits#hand
                yield words


def saved(page: Path) -> dict[str, str]:
    """The files that a reader is told to save: the first block of code after the name."""
    found = re.findall(r"`(\w+\.py)`[^`]*?:\n\n```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    return dict(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_is_possible(page: Path) -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for program, *words in commands(page):
        if program != "cosda":
            assert program in ELSEWHERE, program
            if program == "python" and words[0] != "-m":
                places = (ROOT, ROOT / "examples")
                assert words[0] in saved(page) or any((place / words[0]).is_file() for place in places), words[0]
            assert all(extra in known for text in words for extra in re.findall(r"\w+", re.sub(r"^[^\[]*", "", text)))
        elif words != ["--version"]:
            name, *rest = words
            asked = COMMANDS[name].make_context(name, rest, resilient_parsing=name == "report").params
            possible(name, asked)


def possible(name: str, asked: dict) -> None:
    """Methods, rules, ablations and settings, which are only texts to the command line, are there."""
    if name not in ("run", "bench", "adapt"):
        return
    methods = (asked.get("methods") or asked["method"]).split(",")
    rules = [f"adapt.carry={rule}" for rule in asked["carry"].split(",")] if asked["carry"] else []
    for method in methods:
        for ablation in (asked["ablate"] or "").split(","):
            changes = parse_changes([*rules, *(asked["set_"] or [])])
            request = Request(method, changes=changes, ablation=ablation or None)
            assert resolve(Data("digits", ("a", "b"), ("x", "y")), request).method == method


# --- walked from the first line to the last -------------------------------------------------------------------------

FEW = ["--set", "adapt.epoch_images=128", "--set", "adapt.measure=target", "--set", "adapt.validate=64"]
QUICK = {  # what makes a command quick; the rest is as printed
    "run": ["--epochs", "1", "--set", "source.epochs=1", "--set", "source.epoch_images=256", *FEW],
    "adapt": ["--epochs", "3", "--keep-rejected"],
}
CHECKED_ALONE = {"bench", "export"}  # their options are checked above; other tests run them


@pytest.fixture
def walk(cosda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, list[str]]]:
    """Do what a page says in an empty folder; what each command printed, by its first word."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def follow(page: Path, shorter: dict[str, str], codes: dict[str, set[int]]) -> dict[str, list[str]]:
        files = saved(page)
        for name, code in files.items():
            for long, short in shorter.items():
                code = code.replace(long, short)
            (tmp_path / name).write_text(code)
            monkeypatch.delitem(sys.modules, Path(name).stem, raising=False)
        said: dict[str, list[str]] = {}
        for program, *words in commands(page):
            if program == "export":
                monkeypatch.setenv(*words[0].split("=", 1))
            elif program == "python" and words[0] in files:
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    runpy.run_path(words[0], run_name="__main__")
                said.setdefault(words[0], []).append(printed.getvalue())
            elif program == "cosda" and words[0] not in CHECKED_ALONE:
                name = words[0]
                answer = cosda(*words, *QUICK.get(name, []))
                assert answer.code in codes.get(name, {0}), f"{shlex.join(words)}: {answer.out}{answer.err}"
                said.setdefault(name, []).append(answer.out)
        for name in files:
            sys.modules.pop(Path(name).stem, None)
        return said

    return follow


def test_the_tutorial_for_engineers(walk, tmp_path: Path) -> None:
    page = DOCS / "tutorials" / "engineer.md"
    shorter = {"range(10)": "range(3)", ".train[:600]": ".train[:120]"}
    said = walk(page, shorter, {"monitor": {4}, "adapt": {0, 3}})
    assert "decided by the labelled images" in said["adapt"][1]
    assert "REJECTED" in said["adapt"][2]  # the rate that is far too high
    assert "warehouse" in said["model"][0]
    assert re.search(r"3 .* adapt +warehouse +120 ", said["history"][0])
    assert said["monitor"][1].count("office-today") == 2  # the table, and the reason below it
    assert (tmp_path / "changes.html").is_file()
    what_is_kept(tmp_path)


def what_is_kept(folder: Path) -> None:
    """The table of guides/privacy.md is true of what the tutorial leaves behind."""
    names = {path.name for path in (folder / "photos").rglob("*.png")}

    def named(path: Path) -> bool:
        content = path.read_bytes()
        return any(name.encode() in content for name in names)

    model = [path for path in (folder / "week-2").rglob("*") if path.is_file()]
    assert not any(named(path) for path in model)
    assert not any(path.suffix in (".png", ".jpg") for path in model)
    assert str(folder / "week-1") in (folder / "week-2" / "model.json").read_text()  # as the page warns
    assert str(folder) not in (folder / "week-2" / "README.md").read_text()
    for run in (folder / "runs").glob("own-*"):
        verdict = run / "verdict"
        assert 0 < len(list(verdict.glob("*.jpg"))) <= 48
        assert named(verdict / "images.json")
        assert not (run / "checkpoint").exists()
    assert named(folder / "report.html")
    assert "data:image/jpeg" in (folder / "report.html").read_text()
    assert "png" in (folder / "today.csv").read_text()


def test_the_tutorial_for_researchers(walk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(METHODS, "tied", None)  # type: ignore[arg-type]  # so that it is gone afterwards
    quick = '"pull": pull, "source.epochs": 1, "source.epoch_images": 256, "adapt.epoch_images": 128'
    page = DOCS / "tutorials" / "researcher.md"
    said = walk(page, {'"pull": pull': quick, "range(3)": "range(1)", "seed=seed,": "seed=seed, epochs=1,"}, {})
    assert len(said["third.py"][0].splitlines()) == 2
    assert "source drop" in said["third.py"][0]
    assert all("bwt" in text for text in said["run"])
    report = (tmp_path / "report.md").read_text()
    for row in ("aad", "cosda", r"cosda (no-dual-speed)", "tied"):
        assert f"| {row}" in report


# --- code and quotes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["concepts/forgetting.md", "guides/how-many-images.md"])
def test_code_prints_what_the_page_shows(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    pairs = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(pairs) == len(blocks(DOCS / name, "python")) > 0
    for code, shown in pairs:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, name, "exec", dont_inherit=True), {})
        assert printed.getvalue() == shown


def test_the_worked_example_is_reckoned_right_by_hand_too() -> None:
    page = DOCS / "concepts" / "forgetting.md"
    [code], [shown] = blocks(page, "python"), blocks(page, "text")
    rows = [[100 * float(value) for value in row.split(",")] for row in re.findall(r"\[([\d., ]+)\],", code)]
    table = re.findall(r"^\| .*?((?:\| \**\d\d\.\d\d\** ?){3})\|$", page.read_text(), re.MULTILINE)
    assert [[float(value) for value in re.findall(r"\d\d\.\d\d", row)] for row in table] == [
        [pytest.approx(value) for value in row] for row in rows
    ]
    for sum_, value in re.findall(r"\| ([^|]*[+−/][^|]*) = (−?\d+\.\d\d) \|", page.read_text()):
        reckoned = eval(sum_.split(": ")[-1].replace("−", "-"))
        assert reckoned == pytest.approx(float(value.replace("−", "-")), abs=0.011)
        assert value.replace("−", "-") in shown


def test_the_code_about_statistics_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    few = {"source.epochs": 1, "source.epoch_images": 256, "adapt.epoch_images": 128}
    monkeypatch.setattr(library, "run_chain", partial(library.run_chain, epochs=1, settings=few))
    [code] = blocks(DOCS / "concepts" / "batchnorm.md", "python")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "batchnorm", "exec", dont_inherit=True), {})
    [shown] = blocks(DOCS / "concepts" / "batchnorm.md", "text")
    wording = [re.sub(r"\d+%", "…", text) for text in (printed.getvalue(), shown)]
    assert wording[0] == wording[1]


def test_the_code_of_the_first_pages_runs(
    model: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(model, "office-model")
    shutil.copytree(photos / "three", "photos/warehouse")
    for page in PAGES[:2]:
        for code in blocks(page, "python"):
            exec(compile(code, page.stem, "exec", dont_inherit=True), {})
    said = capsys.readouterr().out
    assert said.split()[0] in ("accepted", "doubtful", "rejected")
    assert library.__version__ in said
    assert "cosda+aad" in said
    assert (tmp_path / "warehouse-model" / "model.json").is_file()


def test_what_is_quoted_is_said() -> None:
    """The words in quotes of the page on what can go wrong stand in the code; … is what differs from case to case."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # texts over several lines
    code = re.sub(r"\{[^{}]*\}(%)?", "…", code)
    quotes = re.findall(r'"([^"]{12,})"', (DOCS / "guides" / "what-can-go-wrong.md").read_text(encoding="utf-8"))
    assert len(quotes) > 15
    for quote in quotes:
        assert quote in code, quote


def test_the_extras_are_those_that_there_are() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    table = re.search(r"^\| extra .*?\n\n", (DOCS / "install.md").read_text(), re.MULTILINE | re.DOTALL)
    assert table
    rows = re.findall(r"^\| `.*?(?= \|)", table[0], re.MULTILINE)
    assert len(rows) == len({*rows})
    assert {*re.findall(r"`(\w+)`", table[0].replace("`cosda import`", "").replace("`--encoder`", ""))} == (
        extras.keys() - {"dev"}
    )
