"""Settings of all tests. `tiny.py` beside this file has small networks and domains."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# The same for processes that tests start: tests run side by side, and threads of many processes fight for cores.
os.environ["OMP_NUM_THREADS"] = "1"
# Tests of bf16 do without AMX: some virtual machines announce it and kill whoever uses it (models/arithmetic.py).
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no worker waits for it in the end."""
    items.sort(key=lambda item: item.path.name != "test_behaviour.py")


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
