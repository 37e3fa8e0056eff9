"""Waiting for something to happen, however busy the machine is."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

HANG = 1200  # seconds that nothing but a hang takes, so no test fails because others have the cores


def wait_until(happened: Callable[[], Any], what: str, process: subprocess.Popen[Any] | None = None) -> bool:
    """Look again and again until something has happened; False where a process that must live for it has ended.

    Raises:
        AssertionError: it hangs; the message says on ``what``.
    """
    end = time.monotonic() + HANG
    while not happened():
        if process is not None and process.poll() is not None:
            return bool(happened())
        assert time.monotonic() < end, f"hangs: {what}"
        time.sleep(0.005)
    return True


@contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[None]:
    """After the block the process has ended, whatever came; another test must not find it at work."""
    try:
        yield
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
