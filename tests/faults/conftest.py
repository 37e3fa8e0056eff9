"""How many cases there are, and who does them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cases import CASES
from hypothesis import HealthCheck, settings
from server import Server

from benches import write_vectors
from tiny import tiny_benchmark

settings.register_profile(
    "faults",
    max_examples=CASES or 8,
    derandomize=True,  # a fixed seed
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("faults")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One process for all cases; Linux alone says how much memory it took."""
    if sys.platform != "linux":
        pytest.skip("the memory of a process is read from /proc")
    process = Server()
    yield process
    process.close()


@pytest.fixture(scope="session")
def models(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of images and one of feature vectors, barely trained."""
    root = tmp_path_factory.mktemp("models")
    vectors = write_vectors(root / "vectors.npz")
    arrays = {f"{d.name}_{part}": getattr(d, "items" if part == "images" else part)
              for d in tiny_benchmark() for part in ("images", "labels")}  # fmt: skip
    np.savez(root / "images.npz", **arrays)
    few = ("--domain", "one", "--epochs", "1", "--set", "network.bottleneck=8", "--out", root / "runs", "--quiet")
    server.run("source", vectors, "--model", root / "features", *few).check([0])
    small = ("--encoder", "small", "--size", "16")
    server.run("source", root / "images.npz", "--model", root / "images", *few, *small).check([0])
    return {"features": root / "features", "images": root / "images"}
