"""`cosda import` from the shell, and what the other commands do with a model whose code is the user's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

CODE = """
from torch import nn

def make():
    body = nn.Sequential(nn.Conv2d(3, 6, 5, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    return nn.Sequential(body, nn.Linear(24, 3))
"""
OPTIONS = ("--classes", "classes.txt", "--size", 16, "--mean", "0.5", "--std", "0.4,0.5,0.6", "--no-flip")


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a function in the current folder, beside a file of weights and one of classes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COSDA_BUILD", raising=False)
    name = f"shell_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(CODE)
    namespace: dict[str, type] = {}
    exec(CODE, namespace)
    torch.manual_seed(0)
    network: nn.Module = namespace["make"]()
    torch.save({"state_dict": network.state_dict()}, tmp_path / "trained.pth")
    (tmp_path / "classes.txt").write_text("a\nb\nc\n")
    yield f"{name}:make"
    sys.modules.pop(name, None)


@pytest.fixture
def imported(cosda, build: str) -> str:
    """The folder of such a model."""
    answer = cosda("import", "trained.pth", "--build", build, *OPTIONS, "--to", "mine")
    assert answer.code == 0, answer.err
    return "mine"


def test_import_tells_what_it_made_and_what_comes_next(cosda, build) -> None:
    answer = cosda("import", "trained.pth", "--build", build, *OPTIONS, "--to", "mine")
    assert answer.code == 0, answer.err
    for text in (
        "3 classes: a, b, c",
        f"built by {build}",
        "images of 16 × 16 pixels, mean 0.5, deviation 0.4/0.5/0.6",
        f"cosda evaluate mine LABELLED --build {build}",
        f"cosda profile mine LABELLED --labelled --build {build}",
        f"cosda monitor mine NEW_IMAGES --build {build}",
        f"cosda adapt mine NEW_IMAGES --to ADAPTED_MODEL --method aad --carry bank --build {build}",
    ):
        assert text in answer.out
    assert json.loads(Path("mine/model.json").read_text())["preprocessing"]["flip"] is False
    assert "ImageNet" not in answer.out


def test_preprocessing_that_nobody_gave_is_named(cosda, build) -> None:
    """Wrong preprocessing looks like a bad model, so a guess is said."""
    words = ("import", "trained.pth", "--build", build, "--classes", "classes.txt", "--size", "16", "--to", "mine")
    assert "careful: --mean, --std as for ImageNet" in cosda(*words).out


def test_every_command_opens_it_only_with_the_name(cosda, imported, build, photos: Path, monkeypatch) -> None:
    commands = {
        "predict": ("predict", imported, photos / "one"),
        "evaluate": ("evaluate", imported, photos / "one"),
        "profile": ("profile", imported, photos / "one", "--to", "profiled"),
        "adapt": ("adapt", imported, photos / "two", "--to", "new", "--method", "bn", "--keep-rejected"),
        "run": ("run", photos, "--domains", "one,two", "--model", imported, "--method", "source"),
        "model": ("model", "bank", "--drop", "two"),
    }
    made = cosda("adapt", imported, photos / "two", "--to", "bank", "--method", "bn", "--carry", "bank",
                 "--keep-rejected", "--build", build)  # fmt: skip
    assert made.code in (0, 3), made.err
    for words in commands.values():
        answer = cosda(*words)
        assert answer.code == 2
        assert f"--build {build}" in answer.err
    for name, words in commands.items():
        answer = cosda(*words, "--build", build)
        assert answer.code in ((0, 3) if name == "adapt" else (0,)), (name, answer.err)
    monkeypatch.setenv("COSDA_BUILD", build)
    assert cosda("evaluate", "new", photos / "one").code == 0
    monkeypatch.delenv("COSDA_BUILD")
    assert f"--build {build}" in cosda("evaluate", "new", photos / "one").err, "adapted models remember it too"
    shown = cosda("model", "new")
    assert shown.code == 0
    assert f"network: your own (built by {build}), " in shown.out
    assert f"{build}, weights trained.pth" in shown.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("trained.pth",), "Say which function of yours makes it: --build MODULE:FUNCTION"),
        (("trained.xyz",), "say which function makes the network: --build MODULE:FUNCTION"),
        (("timm/resnet18",), "--weights FILE, or --weights pretrained"),
        (("trained.pth", "--mean", "1,2"), "write one number or three"),
        (("trained.pth", "--std", "x"), "write one number or three"),
        (("trained.pth", "--profile", "zoom"), "preprocessing profile 'zoom' is unknown"),
        (("trained.pth", "--classifier", "2"), "no Linear layer or 1x1 convolution called '2'"),
    ],
)
def test_wrong_imports_write_nothing(cosda, build, words, message) -> None:
    given = ("--build", build) if len(words) > 1 else ()
    answer = cosda("import", *words, *given, "--classes", "classes.txt", "--to", "mine")
    assert answer.code == 2
    assert message in answer.err
    assert not Path("mine").exists()


def test_a_file_of_classes_that_is_not_there(cosda, build) -> None:
    answer = cosda("import", "trained.pth", "--build", build, "--classes", "class.txt", "--to", "mine")
    assert (answer.code, answer.err) == (2, "cosda: the file of classes class.txt does not exist.\n")


def test_a_model_is_not_replaced_by_an_import(cosda, imported, build) -> None:
    again = ("import", "trained.pth", "--build", build, *OPTIONS, "--to", imported)
    assert "holds a model already" in cosda(*again).err
    assert cosda(*again, "--overwrite").code == 0


def test_a_graph_is_imported_and_not_adapted(cosda, build, photos: Path) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(768, 3)).eval()
    program = torch.export.export(network, (torch.rand(1, 3, 16, 16),))
    torch.export.save(program, "mine.pt2")
    answer = cosda("import", "mine.pt2", "--classes", "classes.txt", "--to", "mine")
    assert answer.code == 0, answer.err
    assert "'cosda adapt' needs the network itself" in answer.out
    assert "cosda adapt mine" not in answer.out
    assert cosda("evaluate", "mine", photos / "one").code == 0
    assert "network: a graph, torch.export" in cosda("model", "mine").out
    refused = cosda("adapt", "mine", photos / "two", "--to", "new")
    assert refused.code == 2
    assert "which cannot be trained" in refused.err
    assert not Path("new").exists()
