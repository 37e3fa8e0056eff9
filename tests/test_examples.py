"""The scripts of examples/, each run as its user would, and what they claim in what they print."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import cosda
from packages import install
from waiting import HANG

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
LONGEST = 60  # lines of a script

# As if some modules were not installed.
WITHOUT = """
import importlib.util, runpy, sys

hidden, script = sys.argv[1], sys.argv[2]
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == hidden else find(name, package)


class Hidden:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == hidden:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


sys.meta_path.insert(0, Hidden)
runpy.run_path(script, run_name="__main__")
"""


def call(folder: Path, *words: str | Path, places: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Python with these words, in that folder."""
    path = os.pathsep.join([*map(str, places), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=HANG)


def printed(folder: Path, *words: str | Path, places: tuple[Path, ...] = ()) -> str:
    """What a script prints that ends well."""
    done = call(folder, *words, places=places)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accuracies(text: str) -> dict[str, tuple[float, float]]:
    """By domain, in percent, before and after."""
    found = re.findall(r"^(.+): ([\d.]+)% before, ([\d.]+)% after$", text, flags=re.MULTILINE)
    return {name: (float(before), float(after)) for name, before, after in found}


def verdict(text: str) -> str:
    """The verdict that stands below its line."""
    [word] = re.findall(r"^verdict with.* labels:\n  (\w+)$", text, flags=re.MULTILINE)
    return word


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `print-model` lies, and the run that trained it, so that scripts need not train it again."""
    folder = tmp_path_factory.mktemp("trained")
    cosda.train_source("digits", "print", out=folder / "runs").model.save(folder / "print-model")
    return folder


# --- The scripts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "package", "old", "new", "least"),
    [
        ("hf_vit.py", "transformers", "old camera", "new camera", 8),
        ("timm_model.py", "timm", "print", "outline", 15),
        ("text_features.py", None, "news", "chat", 15),
        ("tabular.py", None, "laboratory A", "laboratory B", 20),
    ],
)
def test_the_new_domain_is_learnt_and_the_old_one_kept(
    script: str, package: str | None, old: str, new: str, least: float, tmp_path: Path
) -> None:
    if package is not None and find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'cosda[{package}]'")
    starter = [] if package is None else [Path(__file__).with_name("torchvision_operators.py")]
    text = printed(tmp_path, *starter, EXAMPLES / script)
    found = accuracies(text)
    assert list(found) == [old, new]
    assert found[new][1] > found[new][0] + least, text
    assert found[old][1] > found[old][0] - 1.5, text
    assert verdict(text) in (("accepted",) if script == "tabular.py" else ("accepted", "doubtful"))
    if script == "hf_vit.py":  # what transformers reads as a checkpoint
        config = json.loads((tmp_path / "adapted-vit" / "config.json").read_text(encoding="utf-8"))
        assert config["architectures"] == ["ViTForImageClassification"]
        assert "classifier.weight" in load_file(tmp_path / "adapted-vit" / "model.safetensors")


def test_a_dataset_and_a_plain_module(tmp_path: Path) -> None:
    text = printed(tmp_path, EXAMPLES / "torch_dataset.py")
    [(before, after)] = accuracies(text).values()
    assert after > before + 8, text
    weights = torch.load(tmp_path / "adapted.pth", weights_only=True)
    assert weights["10.weight"].shape == (10, 512)  # the user's own name of the last layer


def test_a_method_of_another_package(trained: Path, tmp_path: Path) -> None:
    project = tomllib.loads((EXAMPLES / "my-method" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [(name, value)] = project["entry-points"]["cosda.methods"].items()
    code = (EXAMPLES / "my-method" / "my_method.py").read_text(encoding="utf-8")
    site = install(tmp_path, "my-method", f"[cosda.methods]\n{name} = {value}\n", my_method=code)
    text = printed(trained, EXAMPLES / "own_method.py", places=(site,))
    found = accuracies(text)
    assert list(found) == ["print, aad", "outline, aad", "print, sharpen", "outline, sharpen"]
    for method in ("aad", "sharpen"):
        assert found[f"outline, {method}"][1] > found[f"outline, {method}"][0] + 5, text
        assert found[f"print, {method}"][1] > found[f"print, {method}"][0] - 1.5, text


def test_two_processes_make_one_model(trained: Path) -> None:
    start = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    text = printed(trained, *start, EXAMPLES / "torchrun_adapt.py")
    [(name, (before, after))] = accuracies(text).items()
    assert name == "outline, 2 processes"
    assert after > before + 8, text
    assert verdict(text) == "accepted"
    assert cosda.load(trained / "adapted-model").domains == ("print", "outline")


def test_the_exported_file_says_what_the_model_says(trained: Path) -> None:
    if not all(map(find_spec, ("onnx", "onnxruntime", "onnxscript"))):
        pytest.skip("the extra is not installed: pip install 'cosda[onnx]'")
    text = printed(trained, EXAMPLES / "export_onnx.py")
    said = re.findall(r"^cosda says of (\S+): (\d), and that it is from (\w+)$", text, flags=re.MULTILINE)
    assert [(picture, domain) for picture, _, domain in said] == [("print.png", "print"), ("outline.png", "outline")]
    assert [number for _, number, _ in said] == ["7", "7"]
    [words] = re.findall(r"^now: python (.*)$", text, flags=re.MULTILINE)
    script, *rest = words.split()
    served = printed(trained, EXAMPLES / script, *rest)
    assert re.findall(r"^(\S+),(\d),[\d.]+$", served, flags=re.MULTILINE) == [one[:2] for one in said]


def test_runs_on_ray(tmp_path: Path) -> None:
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'cosda[ray]'")
    text = printed(tmp_path, EXAMPLES / "ray_bench.py")
    found = re.findall(r"^(\w+): ([\d.]+)% on outline, mean of 2 seeds$", text, flags=re.MULTILINE)
    by_method = {method: float(accuracy) for method, accuracy in found}
    assert by_method.keys() == {"source", "aad"}
    assert by_method["aad"] > by_method["source"] + 3, text
    assert len(cosda.find_runs(tmp_path / "ray-runs")) == 4


# --- What is missing is said in one line ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "module", "extra"),
    [
        ("hf_vit.py", "transformers", "transformers"),
        ("timm_model.py", "timm", "timm"),
        ("export_onnx.py", "onnxscript", "onnx"),
    ],
)
def test_a_missing_extra(script: str, module: str, extra: str, tmp_path: Path) -> None:
    done = call(tmp_path, "-c", WITHOUT, module, EXAMPLES / script)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("This example needs ")
    assert f"pip install 'cosda[{extra}]'" in line
    assert not list(tmp_path.iterdir())


def test_a_torchvision_that_does_not_fit(tmp_path: Path) -> None:
    """As it comes beside CPU builds of torch: the import of timm ends with an error of torch."""
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    done = call(tmp_path, EXAMPLES / "timm_model.py", places=(tmp_path,))
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "a torchvision that fits torch" in line
    assert "operator torchvision::nms does not exist" in line


def test_ray_is_missing(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\", name='ray')")
    done = call(tmp_path, EXAMPLES / "ray_bench.py", places=(tmp_path,))
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "pip install 'cosda[ray]'" in line


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("own_method.py", "pip install ./my-method"),
        ("torchrun_adapt.py", "cosda source digits --domain print --model print-model"),
    ],
)
def test_something_else_is_missing(script: str, line: str, tmp_path: Path) -> None:
    done = call(tmp_path, EXAMPLES / script)
    assert done.returncode == 1
    assert done.stderr.rstrip("\n").endswith(line)
    assert len(done.stderr.splitlines()) == 1


# --- What they look like ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_is_short_says_how_it_is_run_and_uses_the_public_names_alone(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LONGEST
    tree = ast.parse(text)
    said = ast.get_docstring(tree) or ""
    assert f"{script.name}" in said
    if script.name == "serve_onnx.py":  # runs where there is no cosda
        assert "import cosda" not in text
        return
    assert re.findall(r"^ *(?:from|import) cosda.*$", text, flags=re.MULTILINE) == ["import cosda"]
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_cosda(node.value)}
    assert names
    assert names <= set(cosda.__all__)
    installed = re.findall(r"^ *pip install ('cosda\[(\w+)\]'|cosda)", said, flags=re.MULTILINE)
    assert len(installed) == 1
    assert not installed[0][1] or installed[0][1] in EXTRAS


def _is_cosda(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "cosda"


def test_the_page_names_every_example_and_no_other() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    table = {target for line in text.splitlines() if line.startswith("| [") for target in _targets(line)[:1]}
    here = {path.name for path in EXAMPLES.iterdir() if path.name != "README.md" and not path.name.startswith("_")}
    assert table == here
    commands = re.findall(r"^    (?:python|torchrun\b.*?) (\w+\.py)\b", text, flags=re.MULTILINE)
    assert set(commands) == {script.name for script in SCRIPTS}


def _targets(line: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", line)
