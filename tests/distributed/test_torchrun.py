"""Commands under torchrun, as their user meets them: records once, errors once, a rank that dies, and going on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from benches import results
from cosda.__main__ import main
from cosda.api import adapt, run_chain
from cosda.bench.run import run_jobs
from cosda.distributed import collectives, env
from cosda.errors import CosdaError
from cosda.models.architecture import Architecture
from cosda.models.artifact import Model
from cosda.models.network import Network
from cosda.models.precision import Arithmetic
from cosda.records.run import Run, find_runs
from cosda.records.writers import Log
from cosda.run.checkpoint import load_checkpoint, save_checkpoint
from cosda.run.environment import write_environment
from cosda.run.machine import Machine
from cosda.run.shared_folder import open_folder
from cosda.watch import Watcher
from tiny import CPU, SEEN, read, tiny_benchmark
from waiting import HANG, wait_until

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "cosda")
SETTINGS = (
    *("epochs=6", "batch_size=8", "source.epochs=2", "source.batch_size=8"),
    *("network.encoder=small", "network.bottleneck=8", "data.size=16"),
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two domains of images on disk, one folder for each class."""
    root = tmp_path_factory.mktemp("photos")
    for domain in list(tiny_benchmark())[:2]:
        assert domain.labels is not None
        for number, label in enumerate(domain.labels):
            folder = root / domain.name / "abc"[label]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.asarray(domain.items[number])).save(folder / f"{number:02}.png")  # type: ignore[index]
    return root


@pytest.fixture
def third_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torchrun says to a process: on two machines of two GPUs it is the first of the second."""
    for name, value in {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "job"}.items():
        monkeypatch.setenv(name, value)


def chain(photos: Path, out: Path) -> list[str]:
    sets = [word for change in SETTINGS for word in ("--set", change)]
    return [*TORCHRUN, "run", str(photos), "--method", "cosda", *sets, "--out", str(out), "--select", "agreement"]


def call(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG)


@pytest.fixture(scope="module")
def undisturbed(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A run by two processes from nothing: not even the cache has the images yet."""
    out = tmp_path_factory.mktemp("two")
    done = call(chain(photos, out))
    assert done.returncode == 0, done.stderr
    return out, done.stdout, done.stderr


def outline(run: Run) -> list[tuple[object, ...]]:
    names = ("kind", "stage", "epoch", "domain", "split", "steps", "images", "passes", "statistics")
    return [tuple(record.get(name) for name in names) for record in run.records]


def test_records_are_those_of_one_process_and_written_once(
    photos: Path, undisturbed: tuple[Path, str, str], tmp_path: Path
) -> None:
    out, stdout, stderr = undisturbed
    alone = run_chain(photos, "cosda", settings=read(SETTINGS), select="agreement", out=tmp_path)
    (run,) = find_runs([out])
    # Which epoch is chosen may differ: its BatchNorm sees other rows.
    assert [line for line in outline(run) if line[0] != "chosen"] == [
        line for line in outline(alone) if line[0] != "chosen"
    ]
    assert run.done == alone.done
    assert run.path.name == alone.path.name
    assert len(run.timing) == len(alone.timing) == 6
    assert (run.environment["processes"], alone.environment["processes"]) == (2, 1)
    assert {str(path.relative_to(out)) for path in out.rglob("*")} == {
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")
    }
    assert stdout.count("run folder:") == 1
    told = [json.loads(line) for line in stderr.splitlines() if line.startswith("{")]
    assert sum(event["event"] == "done" and "source one" in event["task"] for event in told) == 2
    assert sum(event["event"] == "done" and "→ two" in event["task"] for event in told) == 6


def processes_of(job: subprocess.Popen[str]) -> dict[int, int]:
    """The process of each rank."""
    found = {}
    for child in Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split():
        for name in (b"RANK=0", b"RANK=1"):
            if name in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                found[int(name[-1:])] = int(child)
    return found


def epochs_recorded(out: Path) -> int:
    return sum(path.read_text().count('"loss"') for path in out.glob("*/records.jsonl"))


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the processes of a job in /proc")
@pytest.mark.parametrize("victim", [1])
def test_when_a_rank_is_killed_the_job_ends_and_the_same_command_goes_on(
    victim: int, photos: Path, undisturbed: tuple[Path, str, str], tmp_path: Path
) -> None:
    with subprocess.Popen(chain(photos, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        wait_until(lambda: epochs_recorded(tmp_path) >= 2, "two epochs of the target", job)
        workers = processes_of(job)
        os.kill(workers[victim], signal.SIGKILL)
        _, stderr = job.communicate(timeout=HANG)
    assert job.returncode != 0
    assert not [pid for pid in workers.values() if Path(f"/proc/{pid}").exists()]
    assert not list(tmp_path.glob("*/done.json")), "the run must have been killed for this test to mean anything"
    assert "cosda: rank" not in stderr  # what is told is told by rank 0, or by torchrun
    again = call(chain(photos, tmp_path))
    assert again.returncode == 0, again.stderr
    wanted, got = results(undisturbed[0]), results(tmp_path)
    assert [name for name in wanted if wanted[name] != got.get(name)] == []
    assert got.keys() == wanted.keys()


def test_an_error_of_all_ranks_is_told_once(tmp_path: Path) -> None:
    done = call([*TORCHRUN, "bench", "digits", "--out", str(tmp_path / "runs")])
    assert done.returncode != 0
    told = [line for line in done.stderr.splitlines() if line.startswith("cosda:")]
    assert len(told) == 1
    assert "torchrun is for the commands source, run, adapt" in told[0]
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("third_of_four")
def test_an_error_of_another_rank_bears_its_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cosda.cli.app.GRACE", 0.0)
    monkeypatch.setattr(sys, "argv", ["cosda", "methods"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("cosda: rank 2: torchrun is for")
    assert captured.out == ""


@pytest.mark.usefixtures("third_of_four")
@pytest.mark.parametrize(
    ("device", "has_gpus", "wanted", "backend"),
    [
        ("auto", True, "cuda:1", "nccl"),
        ("cuda", True, "cuda:1", "nccl"),
        ("auto", False, "cpu", "gloo"),
        ("cpu", True, "cpu", "gloo"),
    ],
)
def test_each_process_takes_the_gpu_of_its_number(
    device: str, has_gpus: bool, wanted: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpus)
    monkeypatch.setattr(Machine, "_take", lambda machine: machine._device)  # there are no GPUs here
    monkeypatch.setattr(torch.cuda, "set_device", met.append)
    monkeypatch.setattr(collectives, "join", met.append)
    Machine(device=device).join()
    assert met == ([wanted, backend] if backend == "nccl" else [backend])


@pytest.mark.usefixtures("third_of_four")
def test_what_cannot_be_done_by_several_processes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CosdaError, match="write --device cuda"):
        Machine(device="cuda:0").join()
    with pytest.raises(CosdaError, match="without torchrun"):
        run_jobs([], tmp_path)
    with pytest.raises(CosdaError, match="give out=FOLDER"):
        adapt(small_model(), tiny_benchmark()["two"])


def small_model() -> Model:
    network = Network(nn.Flatten(), nn.Identity(), nn.Linear(3 * 16 * 16, 3))
    return Model(network, Architecture("wrapped", 1, 3), ("a", "b", "c"), SEEN)


@pytest.mark.usefixtures("third_of_four")
@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what is said without GPUs")
def test_a_gpu_that_is_not_there_is_an_error_before_anybody_is_met() -> None:
    with pytest.raises(CosdaError, match="device 'cuda:1' cannot be used"):
        Machine(device="cuda").join()


@pytest.fixture
def follower(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the second of two; the first says that the run is not finished."""
    monkeypatch.setattr(collectives, "_here", env.Place(1, 2, 1))
    monkeypatch.setattr(env, "place", lambda: env.Place(1, 2, 1))
    monkeypatch.setattr(collectives, "from_first", lambda value: False)
    monkeypatch.setattr(collectives, "everyone", lambda value: [value, value])


@pytest.mark.usefixtures("follower")
def test_all_but_the_first_process_write_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with open_folder(tmp_path, {"kind": "adapt"}) as folder, Log(folder, ["tensorboard"], Watcher()):
        assert not folder.finished
        folder.rewind(100)
        folder.append("loss", stage=1)
        folder.append_timing(stage=1)
        write_environment(folder, CPU, Arithmetic())
        save_checkpoint(tmp_path / "checkpoint" / "last.safetensors", {"epoch": 1})
        small_model().save(tmp_path / "model")
        folder.settle()
        folder.finish(stages=1)
    assert [path.name for path in tmp_path.rglob("*")] == ["config.json"]


@pytest.mark.usefixtures("follower")
def test_processes_without_a_common_file_system_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CosdaError, match="an --out that they share"), open_folder(tmp_path / "run", {}):
        pass
    monkeypatch.setattr(collectives, "everyone", lambda value: [value, "what another one has"])
    with pytest.raises(CosdaError, match="must work on one file system"):
        load_checkpoint(tmp_path / "last.safetensors")
