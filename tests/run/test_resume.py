"""Kill -9 at any moment: the same command goes on, and ends with the bits of a run that was never disturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from benches import files_now, lines_recorded, results

PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from tiny import tiny_benchmark
from cosda.run.api import run_chain
import torch
torch.set_num_threads(1)
run_chain(tiny_benchmark(), "cosda", select="agreement", out=Path(sys.argv[1]), changes=(
    "epochs=4", "batch_size=8", "source.epochs=4", "source.batch_size=8",
    "network.encoder=small", "network.bottleneck=8", "data.size=16"))
"""


def command(out: Path) -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(tests=str(Path(__file__).parents[1])), str(out)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    out = tmp_path_factory.mktemp("undisturbed")
    start = time.monotonic()
    subprocess.run(command(out), check=True, capture_output=True)
    return out, time.monotonic() - start


def wait_for(out: Path, what: str, process: subprocess.Popen[bytes]) -> None:
    """Until the run has come as far as a file whose name contains ``what``, or so many lines of records."""
    for _ in range(6000):
        if process.poll() is not None:
            return
        if what.isdigit():
            if lines_recorded(out) >= int(what):
                return
        elif any(what in str(path) for path in files_now(out)):
            return
        time.sleep(0.005)


@pytest.mark.parametrize("moments", [("checkpoint", "3", "9"), ("sources", "6", "12", "18")])
def test_killed_and_started_again_gives_the_same_bits(
    moments: tuple[str, ...], undisturbed: tuple[Path, float], tmp_path: Path
) -> None:
    kills = 0
    for moment in moments:
        process = subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(tmp_path, moment, process)
        time.sleep(float(np.random.default_rng(len(moment)).uniform(0, 0.1)))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 2, "the run must have been killed for this test to mean anything"
    subprocess.run(command(tmp_path), check=True, capture_output=True)
    wanted, got = results(undisturbed[0]), results(tmp_path)
    assert got.keys() == wanted.keys()
    different = [name for name in wanted if wanted[name] != got[name]]
    assert different == []


def test_a_second_process_on_one_run_folder_says_so_and_stops(tmp_path: Path) -> None:
    first = subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(tmp_path, "environment.json", first)
        second = subprocess.run(command(tmp_path), capture_output=True, text=True)
        assert first.poll() is None
        assert second.returncode != 0
        assert "another process is writing to" in second.stderr
    finally:
        first.kill()
        first.wait()
