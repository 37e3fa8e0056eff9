"""`--dry-run`: the plan, and an estimate that is measured and not far from the truth."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from benches import QUICK, bench, jobs_of
from cosda.api import make_plan, train_source
from cosda.bench.board import Board, Onlooker
from cosda.bench.estimate import Costs, about, calibrate, estimate, kind_of
from cosda.bench.jobs import open_benchmark
from cosda.bench.run import run_jobs
from cosda.bench.scheduler import Resources
from cosda.bench.tasks import make_tasks
from cosda.cli.live import render
from cosda.config.request import Request
from cosda.run.machine import Machine
from tiny import read, tiny_benchmark

ONE = Resources(workers=1)
WORK = ("epochs=4", "source.epochs=4", "batch_size=32")
WORK += ("network.encoder=small", "network.bottleneck=32", "data.size=32")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Images enough for some seconds of work."""
    rng = np.random.default_rng(0)
    arrays = {}
    for name in ("one", "two"):
        arrays[f"{name}_images"] = rng.integers(0, 256, (320, 32, 32, 3), dtype=np.uint8)
        arrays[f"{name}_labels"] = np.arange(320) % 4
    path = tmp_path_factory.mktemp("images") / "some.npz"
    np.savez(path, **arrays)
    return str(path)


FAR = 10  # what else the machine does may change between the estimate and the runs


def test_the_estimate_is_near_the_truth_before_and_after(images: str, tmp_path: Path) -> None:
    jobs = jobs_of(images, "source,cosda", "one>two", seeds=2, changes=WORK)
    before = estimate(jobs, tmp_path, ONE, Machine("cpu"))
    assert {row["measured by"] for row in before.rows} == {"calibration"}
    assert before.sources == (2, 0)
    assert not list(tmp_path.iterdir()), "nothing is written"

    start = time.monotonic()
    assert not run_jobs(jobs, tmp_path, ONE, Machine("cpu")).failed
    truth = time.monotonic() - start
    assert truth / FAR < before.seconds < truth * FAR
    files = [path.stat() for path in tmp_path.rglob("*") if path.is_file()]
    on_disk = sum({facts.st_ino: facts.st_size for facts in files}.values())  # linked files once
    assert on_disk / 2 < sum(before.disk.values()) < on_disk * 2

    more = jobs_of(images, "source,cosda", "one>two", seeds=4, changes=WORK)
    after = estimate(more, tmp_path, ONE, Machine("cpu"))
    assert {row["measured by"] for row in after.rows} == {"2 finished"}
    assert [(row["done"], row["partial"], row["missing"]) for row in after.rows] == [(2, 0, 2)] * 2
    assert after.sources == (2, 2)
    assert truth / FAR < after.seconds < truth * FAR  # as many runs as were done
    assert estimate(jobs, tmp_path, ONE, Machine("cpu")).seconds == 0


@pytest.mark.parametrize("method", ["source", "bn", "shot++", "dac", "gsfda"])
def test_methods_of_every_sort_can_be_calibrated(method: str, vectors: str, tmp_path: Path) -> None:
    (task,) = make_tasks(jobs_of(vectors, method, "one>two", changes=QUICK), tmp_path, None)
    found = calibrate(task.plan, open_benchmark(vectors).domains, Machine("cpu", threads=1))
    assert (found.run > 0) == (method != "source")
    assert found.source > 0
    assert not list(tmp_path.iterdir())


def test_a_given_model_can_be_calibrated_without_its_source(tmp_path: Path) -> None:
    benchmark, machine = tiny_benchmark(), Machine("cpu", threads=1)
    small = ("network.encoder=small", "network.bottleneck=8", "data.size=16", "source.epochs=1", "epochs=30")
    model = train_source(benchmark, "one", settings=read(small), out=tmp_path, machine=machine).model
    plan = make_plan(benchmark, Request.of("cosda", ("one", "two"), model, epochs=30))
    before = {name: value.clone() for name, value in model.network.state_dict().items()}
    found = calibrate(plan, {"two": benchmark["two"]}, machine, model)
    assert found.source == 0
    assert found.run > 0
    assert all(value.equal(before[name]) for name, value in model.network.state_dict().items())


def test_only_whole_runs_with_as_many_threads_tell_what_others_cost(vectors: str, tmp_path: Path) -> None:
    (run,) = run_jobs(jobs_of(vectors, "bn", "one>two", changes=QUICK), tmp_path, ONE, Machine("cpu")).runs
    kind = kind_of(run.config)
    costs = Costs()
    costs.learn(run.path, threads=2)
    costs.learn(tmp_path)
    assert not costs
    costs.learn(run.path, threads=1)
    assert costs == {kind: [pytest.approx(run.timing[0]["seconds"] / run.timing[0]["images"])]}
    (run.path / "done.json").unlink()
    costs.learn(run.path)
    assert len(costs[kind]) == 1


def test_a_frozen_encoder_costs_its_features(images: str, tmp_path: Path) -> None:
    changes = (*WORK, "network.freeze_encoder=true")
    jobs = jobs_of(images, "source", "one>two", changes=changes)
    machine = Machine("cpu", cache=tmp_path / "cache")
    before = estimate(jobs, tmp_path / "runs", ONE, machine)
    assert not run_jobs(jobs, tmp_path / "runs", ONE, machine).failed
    features = sum(path.stat().st_size for path in (tmp_path / "cache" / "features").glob("*/*.npy"))
    assert before.disk["features"] == pytest.approx(features, rel=0.01)
    again = estimate(jobs_of(images, "source", "one>two", seeds=2, changes=changes), tmp_path / "new", ONE, machine)
    assert again.disk["features"] == 0


def test_a_time_says_how_far_off_it_may_be() -> None:
    assert about(120, 2) == "about 2 min (between 60 s and 4 min)"


def test_the_command_prints_the_plan_and_does_nothing(vectors: str, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    done = bench(vectors, out, "--methods", "source,cosda", "--pairs", "all", "--seeds", "2", "--dry-run")
    assert done.returncode == 0, done.stderr
    for said in (
        "tiny: 2 methods × 6 chains × 2 seeds = 24 runs",
        "calibration",
        "source models: 6 to train, 0 trained",
        "time: about",
        "disk: about",
    ):
        assert said in done.stdout
    assert not out.exists()


def test_the_live_table_shows_counts_and_where_each_run_is(vectors: str, tmp_path: Path) -> None:
    from rich.console import Console

    tasks = make_tasks(jobs_of(vectors, "cosda", "one>two,two>one", changes=("epochs=9",)), tmp_path, None)
    board = Board(tasks, Onlooker())
    board.start(tasks[0])
    console = Console(width=120)
    with console.capture() as seen:
        console.print(render(board))
    assert "0 done, 1 running, 0 failed, 1 left; time left: –" in seen.get()
    assert "preparing" in seen.get()
    tasks[0].source.mkdir(parents=True)
    (tasks[0].source / "done.json").write_text("{}")
    tasks[0].path.mkdir(parents=True)
    (tasks[0].path / "timing.jsonl").write_text('{"stage":1,"epoch":6,"seconds":1}\n{"stage":1,"ep')
    with console.capture() as seen:
        console.print(render(board))
    assert "two (1/1), epoch 7/9" in seen.get()
