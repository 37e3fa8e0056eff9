"""Entries by name: those of this package, of a program, and of installed packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cosda import registry
from cosda.errors import CosdaError
from cosda.records.run import read_run
from cosda.registry import Registry, packages_used
from packages import install

EXAMPLE = Path(__file__).parents[1] / "examples" / "my-method"


@dataclass
class Fruit:
    title: str = ""


class Tree:
    title = "has leaves"


FRUITS = Registry("fruit", {"apple": Fruit("grows here"), "pear": Fruit()})


def test_an_entry_is_found_by_its_name():
    assert FRUITS.find("apple") is FRUITS["apple"]


def test_an_unknown_name_gets_the_nearest_one_and_all_others():
    with pytest.raises(CosdaError, match=r"there is no fruit 'aple'. Did you mean 'apple'\? Known: apple, pear\."):
        FRUITS.find("aple")


def test_help_names_what_was_added_from_outside():
    fruits = Registry("fruit", FRUITS)
    fruits["plum"] = Fruit("is blue")
    assert fruits.described() == "apple: grows here; pear; plum: is blue"


def test_a_registry_is_a_dictionary():
    fruits = Registry("fruit", FRUITS)
    fruits["plum"] = Fruit()
    assert list(fruits) == ["apple", "pear", "plum"]
    assert len(fruits) == 3
    assert dict(fruits) == dict(zip(fruits.keys(), fruits.values(), strict=True)) == {**fruits}
    del fruits["plum"]
    assert "plum" not in fruits
    assert fruits.get("plum") is None
    with pytest.raises(KeyError):
        fruits["plum"]


# --- Entries of installed packages ------------------------------------------------------------------------------------

Orchard = Callable[..., Registry[Fruit]]


@pytest.fixture
def orchard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Orchard]:
    """A registry, as it is after such a package was installed; called again, after one more was."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_used", {})
    before = set(sys.modules)

    def installed(name: str, points: str, **modules: str) -> Registry[Fruit]:
        install(tmp_path, name, f"[test_cosda.others]\nx = nowhere\n[cosda.fruits]\n{points}", **modules)
        registry.plugins.cache_clear()
        return Registry("fruit", FRUITS, group="cosda.fruits", of=Fruit)

    yield installed
    registry.plugins.cache_clear()
    for name in set(sys.modules) - before:
        del sys.modules[name]


GARDEN = "from test_registry import Fruit\nplum, quince = Fruit('is blue'), Fruit()\n"


def test_an_installed_package_adds_entries_and_is_imported_when_one_is_used(orchard, caplog):
    fruits = orchard("my-garden", "quince = garden:quince\nplum = garden:plum", garden=GARDEN)
    assert list(fruits) == ["apple", "pear", "plum", "quince"]
    assert len(fruits) == 4
    assert "plum" in fruits
    assert fruits.described() == "apple: grows here; pear; plum: of my-garden 0.1.0; quince: of my-garden 0.1.0"
    with pytest.raises(CosdaError, match="Known: apple, pear, plum, quince"):
        fruits.find("fig")
    assert "garden" not in sys.modules
    assert packages_used() == {}
    assert fruits.find("quince").title == ""
    assert fruits["plum"] is fruits.find("plum") is sys.modules["garden"].plum
    assert list(fruits.items()) == [(name, fruits[name]) for name in ("apple", "pear", "plum", "quince")]
    assert packages_used() == {"my-garden": "0.1.0"}
    assert not caplog.records


def test_a_program_may_replace_the_entry_of_a_package(orchard):
    fruits = orchard("my-garden", "plum = garden:plum", garden=GARDEN)
    fruits["plum"] = Fruit("another")
    assert fruits["plum"].title == "another"
    assert len(fruits) == 3


@pytest.mark.parametrize(
    ("point", "code", "reason"),
    [
        (
            "bad:plum",
            "import no_such_module",
            "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("bad:plum", "plum = ", "cannot be loaded: SyntaxError: "),
        ("bad:plum", "import sys; sys.exit(3)", "cannot be loaded: SystemExit: 3"),
        ("bad:plum", "", "cannot be loaded: AttributeError: module 'bad' has no attribute 'plum'"),
        ("bad:", "", "cannot be "),
        ("bad:plum", "plum = 5", "cannot be used: bad:plum is no test_registry.Fruit"),
        ("bad:plum", "from test_registry import Fruit as plum", "cannot be used: bad:plum is no test_registry.Fruit"),
    ],
)
def test_a_broken_package_is_named_and_everything_else_goes_on(orchard, caplog, point, code, reason):
    fruits = orchard("bad-garden", f"plum = {point}", bad=code)
    fruits = orchard("my-garden", "quince = garden:quince", garden=GARDEN)
    assert fruits.find("apple").title == "grows here"
    assert [name for name, _ in fruits.items()] == ["apple", "pear", "quince"]
    assert len(fruits.values()) == 3
    [line] = caplog.messages  # told once
    assert line.startswith(f"cosda: the fruit 'plum' of the package bad-garden 0.1.0 {reason}")
    assert line.endswith("Repair that package, or uninstall it. Until then it is left out.")
    for _ in range(2):
        with pytest.raises(CosdaError, match="the fruit 'plum' of the package bad-garden"):
            fruits.find("plum")
    assert packages_used() == {"my-garden": "0.1.0"}


def test_an_instance_is_no_class(orchard):
    orchard(
        "bad-garden",
        "oak = bad:oak\nfir = bad:fir",
        bad="from test_registry import Tree\nclass fir(Tree): pass\noak = Tree()",
    )
    trees = Registry("tree", {"elm": Tree}, group="cosda.fruits", of=Tree)
    assert trees["fir"].__mro__[1] is Tree
    with pytest.raises(CosdaError, match=r"bad:oak is no class that derives from test_registry\.Tree"):
        trees.find("oak")


def test_a_name_that_is_there_keeps_its_meaning(orchard, caplog):
    fruits = orchard("my-garden", "pear = garden:plum", garden=GARDEN)
    assert fruits.find("pear") is FRUITS["pear"]
    assert len(fruits) == 2
    [line] = caplog.messages
    assert line.startswith("cosda: the fruit 'pear' of the package my-garden 0.1.0 is left out, because cosda's own")
    assert "garden" not in sys.modules


def test_two_packages_with_one_name_are_both_named(orchard, caplog):
    orchard("my-garden", "plum = garden:plum", garden=GARDEN)
    fruits = orchard("her-garden", "plum = hers:plum", hers=GARDEN)
    assert fruits.described().endswith("plum: of her-garden 0.1.0 and my-garden 0.1.0")
    with pytest.raises(CosdaError, match=r"'plum' is declared by her-garden 0\.1\.0 and my-garden 0\.1\.0\. Uninstall"):
        fruits.find("plum")
    assert [name for name, _ in fruits.items()] == ["apple", "pear"]


def test_a_package_that_lies_at_two_places_counts_once(orchard, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(install(tmp_path / "again", "my-garden", "[cosda.fruits]\nplum = garden:plum"))
    fruits = orchard("my-garden", "plum = garden:plum", garden=GARDEN)
    assert fruits.find("plum").title == "is blue"


def test_a_damaged_package_does_no_harm(orchard, tmp_path, caplog):
    install(tmp_path, "torn", "[cosda.fruits]\nno equals sign here\n")
    nameless = install(tmp_path, "nameless", "[cosda.fruits]\nfig = garden:quince\n")
    (nameless / "nameless-0.1.0.dist-info" / "METADATA").unlink()
    fruits = orchard("my-garden", "plum = garden:plum", garden=GARDEN)
    assert list(fruits) == ["apple", "pear", "fig", "plum"]
    assert fruits.find("fig").title == ""
    assert caplog.messages == ["cosda: the entry points of the package torn 0.1.0 cannot be read."]


# --- The command line with a package that was installed -------------------------------------------------------------


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line where `examples/my-method` is installed, and whatever else lies in that folder."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))
    [(group, points)] = project["project"]["entry-points"].items()
    text = "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in points.items())])
    [module] = project["tool"]["setuptools"]["py-modules"]
    install(tmp_path, "my-method", text, **{module: (EXAMPLE / f"{module}.py").read_text(encoding="utf-8")})

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        places = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "cosda", *words]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": places})

    return run


def test_after_pip_install_my_method_there_is_one_more_method(shell, vectors, tmp_path):
    """Whatever else is installed and broken."""
    install(
        tmp_path, "bad", "[cosda.methods]\nbad = bad:Bad\n[cosda.carry_rules]\nbad = bad:Rule", bad="import no_such"
    )
    helped = shell("run", "--help")
    assert helped.returncode == 0
    assert "bad: of bad 0.1.0" in " ".join(helped.stdout.split())
    assert helped.stderr == ""

    listed = shell("methods")
    assert listed.returncode == 0
    assert "learns its own predictions, sharpened" in " ".join(listed.stdout.split())
    [line] = listed.stderr.splitlines()
    assert line.startswith("cosda: the method 'bad' of the package bad 0.1.0 cannot be loaded: ModuleNotFoundError")

    words = ["run", vectors, "--domains", "one,two", "--epochs", "1", "--set", "network.bottleneck=8"]
    options = ["--out", str(tmp_path / "runs"), "--json", "-q"]
    done = shell(*words, "--method", "sharpen", "--set", "temperature=0.25", *options)
    assert done.returncode == 0, done.stderr
    run = read_run(Path(json.loads(done.stdout)["run"]))
    assert run.config["settings"]["method"]["temperature"] == 0.25
    assert [set(record["terms"]) for record in run.of("loss")] == [{"sharpening", "diversity"}]
    environment = json.loads((run.path / "environment.json").read_text(encoding="utf-8"))
    assert environment["versions"]["my-method"] == "0.1.0"

    refused = shell(*words, "--method", "bad", *options)
    assert refused.returncode == 2
    assert refused.stderr.startswith("cosda: the method 'bad' of the package bad 0.1.0 cannot be loaded: ")
    assert len(refused.stderr.splitlines()) == 1
