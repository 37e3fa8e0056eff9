"""The wheel: all files are in it, and it works without extras. `make dist` does the same in an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from tools.wheel import main, missing_files, package_files

import cosda

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Started with the names of modules that are as good as not installed: a whole chain and its report.
PROGRAM = """
import sys
from importlib.machinery import PathFinder

forbidden = set(sys.argv.pop(1).split(","))


class Installed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in forbidden else PathFinder.find_spec(name, path, target)


sys.meta_path = [Installed if finder is PathFinder else finder for finder in sys.meta_path]
import cosda

assert not forbidden & {name.partition(".")[0] for name in sys.modules}
assert "site" in cosda.__file__, cosda.__file__
from cosda.__main__ import app, main

for name in cosda.__all__:
    getattr(cosda, name)
sys.argv[1:] = "run digits --domains print,hand --method aad --carry bank --epochs 1 --set source.epochs=1 -q".split()
app(standalone_mode=False)
sys.argv[1:] = "report runs -o report.html".split()
main()
"""


def words(requirement: str) -> str:
    """The name of a requirement, as the registry spells it."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement).group()).lower()  # type: ignore[union-attr]


def optional_modules() -> set[str]:
    """The modules of all extras, as far as they are installed, apart from those that cosda and torch always need."""
    extras = {words(one) for group in PROJECT["optional-dependencies"].values() for one in group}
    wanted = extras - {words(one) for one in PROJECT["dependencies"]} - {"setuptools"}
    return {
        module
        for module, owners in packages_distributions().items()
        if {words(owner) for owner in owners} <= wanted and not module.startswith("_")
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the tree, because building leaves traces in it."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tree / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / name, tree / name)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(tree)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = out.glob("*.whl")
    return wheel


def test_the_wheel_holds_every_file_of_the_package(wheel):
    assert missing_files(wheel) == []
    assert {"cosda/py.typed", "cosda/data/digits.npz", "cosda/presets/office31.toml"} <= package_files()
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.startswith(("tests", "tools"))]


def test_a_file_that_is_missing_is_noticed(wheel, tmp_path, monkeypatch):
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(tmp_path / wheel.name, "w") as poor:
        for name in whole.namelist():
            if name != "cosda/data/digits.npz":
                poor.writestr(name, whole.read(name))
    monkeypatch.setattr(sys, "argv", ["wheel", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"lacks cosda/data/digits\.npz$"):
        main()


def test_the_version_stands_in_one_place(wheel):
    assert wheel.name == f"cosda-{cosda.__version__}-py3-none-any.whl"


def test_the_wheel_works_without_any_extra(wheel, tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(wheel)], check=True)
    forbidden = optional_modules()
    assert {"datasets", "huggingface_hub", "onnx", "ray", "timm", "transformers", "pytest"} & forbidden
    assert not {"torch", "numpy", "jinja2", "PIL"} & forbidden
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-c", PROGRAM, ",".join(sorted(forbidden))]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").stat().st_size > 10_000
