"""The whole way of docs/production.md, from the shell: import, monitor, adapt, check, history, diff, export, serve."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
from PIL import Image

import cosda
from cosda.data import digits

ROOT = Path(__file__).parents[2]
BUILD = """
from torch import nn


def make():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, 2, 2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 5, 2, 2), nn.BatchNorm2d(32),
        nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    )
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody's trained network as code and weights, and images of two places in class folders and without."""
    import torch

    place = tmp_path_factory.mktemp("site")
    (place / "mine.py").write_text(BUILD)
    given: dict[str, object] = {}
    exec(BUILD, given)
    torch.manual_seed(0)
    network = given["make"]()  # type: ignore[operator]
    domain = digits.load()["print"]
    assert domain.labels is not None
    images = torch.from_numpy(np.asarray(domain.items[domain.train])).permute(0, 3, 1, 2).float() / 255 - 0.5
    labels = torch.from_numpy(domain.labels[domain.train])
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(8):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(64):
            loss = torch.nn.functional.cross_entropy(network(images[rows]), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    safetensors.torch.save_file(network.state_dict(), str(place / "mine.safetensors"))
    (place / "classes.txt").write_text("\n".join("0123456789"))
    for name, count in (("print", 200), ("outline", 200)):
        domain = digits.load()[name]
        assert domain.labels is not None
        for number in domain.test[:count]:
            for folder in (place / "labelled" / name / str(domain.labels[number]), place / name):
                folder.mkdir(parents=True, exist_ok=True)
                Image.fromarray(np.asarray(domain.items[np.array([number])])[0]).save(folder / f"{number:04}.png")
    return place


def shell(site: Path, *words: str, code: int | None = 0) -> str:
    """What the program prints in that folder."""
    environment = os.environ | {"COSDA_BUILD": "mine:make"}
    done = subprocess.run(
        [sys.executable, "-m", "cosda", *words], cwd=site, capture_output=True, text=True, env=environment, check=False
    )
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_from_my_model_to_a_file_that_serves(site: Path) -> None:
    seen = ("--size", "32", "--mean", "0.5", "--std", "1", "--no-flip")
    shell(site, "import", "mine.safetensors", "--build", "mine:make", "--classes", "classes.txt", *seen, "--to", "mine")
    assert "estimates of accuracy rest" in shell(site, "profile", "mine", "labelled/print", "--labelled", "-q")
    (drift,) = json.loads(shell(site, "monitor", "mine", "outline", "--json", "-q", code=4))
    assert drift["adapt"] is True
    said = shell(
        site, "adapt", "mine", "outline", "--to", "outline-model", "--method", "aad", "--carry", "bank",
        "--epochs", "4", "--set", "adapt.lr=0.01", "--set", "adapt.lr_end=0.005", "--check", "labelled/outline", "-q",
    )  # fmt: skip
    assert "ACCEPTED" in said or "DOUBTFUL" in said
    assert "200 labelled images" in said
    steps = json.loads(shell(site, "history", "outline-model", "--json"))
    assert [step["domain"] for step in (steps["steps"] if isinstance(steps, dict) else steps)][-1] == "outline"
    assert "change class" in shell(site, "diff", "mine", "outline-model", "outline", "-q")
    shell(site, "export", "outline-model", "--to", "served.onnx", "--verify", "outline", "-q")
    image = next((site / "outline").glob("*.png"))
    served = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "serve_onnx.py"), "served.onnx", str(image)],
        cwd=site, capture_output=True, text=True, check=True,
    )  # fmt: skip
    model = cosda.load(site / "outline-model", build=lambda: _made(site))
    (wanted,) = cosda.predict(model, [image])
    assert wanted.class_name is not None
    assert wanted.class_name in served.stdout


def _made(site: Path) -> object:
    given: dict[str, object] = {}
    exec((site / "mine.py").read_text(), given)
    return given["make"]()  # type: ignore[operator]


def test_a_rate_that_is_far_too_high_is_rejected_and_nothing_is_written(site: Path) -> None:
    rates = ("--set", "adapt.lr=50", "--set", "adapt.lr_end=50", "--epochs", "3")
    cosda_model = digits_model(site)
    said = shell(site, "adapt", cosda_model, "outline", "--to", "broken", "--method", "aad", *rates, "-q", code=3)
    assert "REJECTED" in said
    assert not (site / "broken").exists()
    shell(
        site,
        "adapt",
        cosda_model,
        "outline",
        "--to",
        "broken",
        "--method",
        "aad",
        *rates,
        "-q",
        "--keep-rejected",
        code=3,
    )
    assert (site / "broken" / "model.json").is_file()


def digits_model(site: Path) -> str:
    if not (site / "print-model").exists():
        shell(site, "source", "digits", "--domain", "print", "--model", "print-model", "--epochs", "5", "-q")
    return "print-model"
