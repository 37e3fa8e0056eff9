"""How many cases there are, who does them, and with what."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import CASES, FEW
from events import SMALL, Events
from hypothesis import HealthCheck, settings
from nets import classifier
from PIL import Image
from server import Server

from benches import write_vectors
from tiny import tiny_benchmark

settings.register_profile(
    "faults",
    max_examples=CASES or FEW,
    derandomize=True,  # a fixed seed
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("faults")
TOLD: list[str] = []  # what a whole run came to, for docs/reliability.md


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it, where it is the whole run."""
    if CASES:
        terminalreporter.write_line("\n".join(TOLD))


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One process for all cases; Linux alone says how much memory it took."""
    if sys.platform != "linux":
        pytest.skip("the memory of a process is read from /proc")
    process = Server()
    yield process
    process.close()
    TOLD.append(str(process.tally))


@pytest.fixture(scope="session")
def models(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of images, one of feature vectors, and a bank of it, barely trained; with data beside them."""
    root = tmp_path_factory.mktemp("models")
    vectors = write_vectors(root / "vectors.npz")
    arrays = {f"{d.name}_{part}": getattr(d, "items" if part == "images" else part)
              for d in tiny_benchmark() for part in ("images", "labels")}  # fmt: skip
    np.savez(root / "images.npz", **arrays)
    _write_images(root / "photos", "012")  # as the model of images names its classes
    few = ("--domain", "one", "--epochs", "1", "--set", "network.bottleneck=8", "--out", root / "runs", "--quiet")
    server.run("source", vectors, "--model", root / "features", *few).check([0])
    small = ("--encoder", "small", "--size", "16")
    server.run("source", root / "images.npz", "--model", root / "images", *few, *small).check([0])
    to = ("--to", root / "bank", "--out", root / "runs", "--carry", "bank", "--method", "aad", "--keep-rejected")
    server.run("adapt", root / "features", f"{vectors}#two", *to, "--epochs", "1", "--quiet").check([0, 3])
    return {name: root / name for name in ("features", "images", "bank")}


@pytest.fixture(scope="session")
def graph(server: Server, models: dict[str, Path]) -> Path:
    """A classifier of images as a graph, beside the others."""
    folder = models["images"].parent
    (folder / "classes.txt").write_text("0\n1\n2\n")
    with warnings.catch_warnings(action="ignore"):
        shapes = ({0: torch.export.Dim("batch")},)
        torch.export.save(
            torch.export.export(classifier().eval(), (torch.zeros(2, 3, 16, 16),), dynamic_shapes=shapes),
            folder / "graph.pt2",
        )
    more = ("--classes", folder / "classes.txt", "--size", "16", "--to", folder / "graph")
    server.run("import", folder / "graph.pt2", *more).check([0])
    return folder / "graph"


@pytest.fixture(scope="session")
def runs(server: Server, models: dict[str, Path]) -> Path:
    """Run folders of two methods, of an adaptation, and of source models."""
    folder = models["features"].parent
    few = ("--epochs", "1", "--set", "source.epochs=1", "--set", "network.bottleneck=8", "--quiet")
    for method in (("nrc",), ("aad", "--carry", "bank")):
        words = ("run", folder / "vectors.npz", "--method", *method, *few, "--out", folder / "runs")
        server.run(*words).check([0])
    return folder / "runs"


@pytest.fixture(scope="session")
def events() -> Iterator[Events]:
    """One process that forks for each command whose writing is looked at."""
    if sys.platform != "linux":
        pytest.skip("which file a number stands for is read from /proc")
    process = Events()
    yield process
    process.close()
    TOLD.append(f"commands by what happened to them: {dict(process.fates)}")


@pytest.fixture(scope="session")
def made(events: Events, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of images, the run that made it, and data."""
    root = tmp_path_factory.mktemp("made")
    write_vectors(root / "vectors.npz")
    for name in ("one", "two"):
        _write_images(root / "photos" / name)
    words = ("source", root / "photos", "--domain", "one", "--model", root / "model", "--out", root / "runs")
    network = ("--encoder", "small", "--size", "16", "--cache", root / "cache", *SMALL)
    events.run(root, *words, *network).check()
    return root


def _write_images(folder: Path, names: str = "abc") -> None:
    """Of three classes."""
    rng = np.random.default_rng(0)
    for number in range(24):
        (folder / names[number % 3]).mkdir(parents=True, exist_ok=True)
        pixels = np.clip(rng.normal(0, 30, (16, 16, 3)) + 120 * np.eye(3)[number % 3] + 60, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / names[number % 3] / f"{number}.png")
