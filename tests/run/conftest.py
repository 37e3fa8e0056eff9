"""Shared by the tests of benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest
from benches import LONG_BENCH, LONGER, bench, write_vectors


@pytest.fixture(scope="session")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_vectors(tmp_path_factory.mktemp("vectors") / "tiny.npz")


@pytest.fixture(scope="session")
def undisturbed(vectors: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A benchmark that nobody disturbed, one run after the other: what all others must equal."""
    out = tmp_path_factory.mktemp("undisturbed") / "runs"
    done = bench(vectors, out, *LONG_BENCH, "--workers", "1", changes=LONGER)
    assert done.returncode == 0, done.stderr
    return out
