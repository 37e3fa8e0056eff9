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
from cosda.api import run_chain
from cosda.errors import CosdaError
from cosda.records.run import Run
from cosda.run.checkpoint import load_checkpoint
from cosda.watch import Watcher
from tiny import read, tiny_benchmark
from waiting import wait_until

PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from tiny import read, tiny_benchmark
from waiting import wait_until
from cosda.api import run_chain
import torch
torch.set_num_threads(1)
run_chain(tiny_benchmark(), "cosda", select="agreement", out=Path(sys.argv[1]), settings=read((
    "epochs=4", "batch_size=8", "source.epochs=4", "source.batch_size=8",
    "network.encoder=small", "network.bottleneck=8", "data.size=16")))
"""


def command(out: Path) -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(tests=str(Path(__file__).parents[1])), str(out)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    subprocess.run(command(out), check=True, capture_output=True)
    return out


def wait_for(out: Path, what: str, process: subprocess.Popen[bytes]) -> None:
    """Until the run has come as far as a file whose name contains ``what``, or so many lines of records."""

    def happened() -> bool:
        if what.isdigit():
            return lines_recorded(out) >= int(what)
        return any(what in str(path) for path in files_now(out))

    wait_until(happened, f"{what} in {out}", process)


@pytest.mark.parametrize("moments", [("checkpoint", "3", "9"), ("sources", "6", "12", "18")])
def test_killed_and_started_again_gives_the_same_bits(
    moments: tuple[str, ...], undisturbed: Path, tmp_path: Path
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
    wanted, got = results(undisturbed), results(tmp_path)
    assert got.keys() == wanted.keys()
    different = [name for name in wanted if wanted[name] != got[name]]
    assert different == []


def test_a_second_process_on_one_run_folder_says_so_and_stops(tmp_path: Path) -> None:
    first = subprocess.Popen(command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(tmp_path, "environment.json", first)
        first.send_signal(signal.SIGSTOP)  # so that it cannot come to its end before the second has begun
        second = subprocess.run(command(tmp_path), capture_output=True, text=True)
        assert first.poll() is None
        assert second.returncode != 0
        assert "another process is writing to" in second.stderr
    finally:
        first.kill()
        first.wait()


class StopsAt(Watcher):
    """Interrupts a run as Ctrl-C does, before the first step of the task whose name ends so."""

    def __init__(self, end: str) -> None:
        self.end_of_task = end

    def begin(self, task: str, steps: int, unit: str = "steps") -> None:
        if task.endswith(self.end_of_task):
            raise KeyboardInterrupt


def short(out: Path, method: str = "cosda", changes: tuple[str, ...] = (), watcher: Watcher | None = None) -> Run:
    quick = ("epochs=2", "batch_size=8", "source.epochs=2", "source.batch_size=8", "network.bottleneck=8")
    small = ("network.encoder=small", "data.size=16", "carry=interpolate=0.5")
    return run_chain(tiny_benchmark(), method, settings=read((*quick, *small, *changes)), out=out, watcher=watcher)


def interrupted(out: Path, epoch: int, method: str = "cosda", changes: tuple[str, ...] = ()) -> Path:
    """The folder of a run that was stopped in its last stage."""
    last = list(tiny_benchmark().domains)[-1]
    with pytest.raises(KeyboardInterrupt):
        short(out, method, changes, StopsAt(f"→ {last} {epoch}/2"))
    (folder,) = (path.parents[1] for path in out.glob("*/checkpoint/last.safetensors"))
    return folder


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize(
    ("method", "changes"), [("cosda", ()), ("gsfda", ()), ("shot", ("network.freeze_encoder=true",))]
)
def test_a_later_stage_goes_on_from_the_model_that_it_began_with(
    method: str, changes: tuple[str, ...], epoch: int, tmp_path: Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    short(whole, method, changes)
    interrupted(parts, epoch, method, changes)
    short(parts, method, changes)
    assert results(parts) == results(whole)


def test_a_checkpoint_does_not_repeat_the_model_that_the_stage_began_with(tmp_path: Path) -> None:
    folder = interrupted(tmp_path, 2)
    stored = load_checkpoint(folder / "checkpoint" / "last.safetensors")
    assert set(stored) == {"stage", "training", "best", "along", "stopped", "diverged", "records"}


@pytest.mark.parametrize("trouble", ["lost", "damaged"])
def test_without_that_model_the_run_says_how_to_go_on_and_loses_nothing(trouble: str, tmp_path: Path) -> None:
    folder = interrupted(tmp_path, 2)
    weights = folder / "models" / "stage-1" / "head.safetensors"
    weights.unlink() if trouble == "lost" else weights.write_bytes(b"other")
    records = (folder / "records.jsonl").read_bytes()
    with pytest.raises(CosdaError, match="cannot go on where it stopped") as caught:
        short(tmp_path)
    assert str(weights.parent) in str(caught.value)
    assert f"delete {folder} to start from its beginning" in str(caught.value)
    assert (folder / "records.jsonl").read_bytes() == records
