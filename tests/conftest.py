"""Settings of all tests. `tiny.py` beside this file has small networks and domains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# The same for processes that tests start: tests run side by side, and threads of many processes fight for cores.
os.environ["OMP_NUM_THREADS"] = "1"
# Tests of bf16 do without AMX: some virtual machines announce it and kill whoever uses it (models/precision.py).
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


# Files that take half a minute or more. They come first, so that no worker waits for one of them in the end.
LONGEST = (
    "test_ray.py",
    "test_behaviour.py",
    "test_examples.py",
    "test_notebooks.py",
    "test_cli.py",
    "test_bench.py",
    "test_resume.py",
    "test_story.py",
    "test_torchrun.py",
    "test_site.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; of the others the order stays."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks in tests are so small that a second thread only costs; and equal thread counts give equal bits."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of a user's cache is read or written."""
    before = os.environ.get("COSDA_CACHE")
    os.environ["COSDA_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["COSDA_CACHE"]
    else:
        os.environ["COSDA_CACHE"] = before


@pytest.fixture(scope="session")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> str:
    from benches import write_vectors

    return write_vectors(tmp_path_factory.mktemp("vectors") / "tiny.npz")


@pytest.fixture(scope="session")
def undisturbed(vectors: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A benchmark that nobody disturbed, one run after the other: what all others must equal."""
    from benches import LONG_BENCH, LONGER, bench

    out = tmp_path_factory.mktemp("undisturbed") / "runs"
    done = bench(vectors, out, *LONG_BENCH, "--workers", "1", changes=LONGER)
    assert done.returncode == 0, done.stderr
    return out
