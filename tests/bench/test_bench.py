"""Many runs: what is expanded, what goes on after a failure or a death, what is not done twice."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benches import LONG_BENCH, LONGER, QUICK, bench, command, jobs_of, lines_recorded, results, table
from cosda.bench.board import Board, Onlooker
from cosda.bench.demo import run_demo
from cosda.bench.estimate import FORWARD, RUN_SECONDS, images_left
from cosda.bench.jobs import Job
from cosda.bench.local import local_devices
from cosda.bench.run import Outcome, run_jobs
from cosda.bench.scheduler import Resources, choose
from cosda.bench.tasks import Task, make_tasks
from cosda.config.resolve import ablations
from cosda.errors import CosdaError
from cosda.files import write_json
from cosda.methods import METHODS
from cosda.run.source import source_config
from waiting import HANG, ended, wait_until

# --- What is asked for ------------------------------------------------------------------------------------------------


def test_all_pairs_and_the_default_chain(vectors: str) -> None:
    jobs = jobs_of(vectors, "source,cosda", "all", "default", seeds=2)
    assert len(jobs) == 2 * (6 + 1) * 2
    assert len(set(jobs)) == len(jobs)
    assert {job.chain for job in jobs if len(job.chain) == 3} == {("one", "two", "three")}
    assert {job.request.method for job in jobs_of(vectors, "all", "one>two")} == set(METHODS)


def test_named_pairs_and_chains(vectors: str) -> None:
    jobs = jobs_of(vectors, "bn", "one>two, two>one", "three>one>two")
    assert [job.chain for job in jobs] == [("one", "two"), ("two", "one"), ("three", "one", "two")]


def test_first_letters_name_domains(vectors: str) -> None:
    jobs = jobs_of(vectors, "bn", "O2TW,th2o", "Th>O>tw")
    assert [job.chain for job in jobs] == [("one", "two"), ("three", "one"), ("three", "one", "two")]


def test_without_pairs_and_chains_it_is_the_default_chain(vectors: str) -> None:
    assert [job.chain for job in jobs_of(vectors, "bn")] == [("one", "two", "three")]


def test_all_chains_are_all_orders(vectors: str) -> None:
    assert len(jobs_of(vectors, "bn", chains="all")) == 6


def test_the_profile_is_left_out_where_a_method_has_none(vectors: str) -> None:
    jobs = jobs_of(vectors, "source,cosda", "one>two", variant="authors")
    assert [job.request.variant for job in jobs] == [None, "authors"]


def test_ablations_come_beside_the_plain_methods(vectors: str) -> None:
    jobs = jobs_of(vectors, "nrc,cosda", "one>two", ablate="all")
    assert [(job.request.method, job.request.ablation) for job in jobs] == [
        ("nrc", None),
        ("cosda", None),
        *(("cosda", name) for name in ablations("cosda")),
    ]
    few = jobs_of(vectors, "nrc,cosda", "one>two", ablate="no-mi")
    assert [(job.request.method, job.request.ablation) for job in few] == [
        ("nrc", None),
        ("cosda", None),
        ("cosda", "no-mi"),
    ]


def test_carry_rules_are_rows_beside_each_other(vectors: str, tmp_path: Path) -> None:
    jobs = jobs_of(vectors, "source,aad", "one>two", carry="last, interpolate=0.3, last", changes=QUICK)
    carried = [(job.request.method, [change.value for change in job.request.changes[:-3]]) for job in jobs]
    assert carried == [("source", []), ("aad", ["last"]), ("aad", ["interpolate=0.3"])]
    labels = [task.plan.label for task in make_tasks(jobs, tmp_path, None)]
    assert labels == ["source", "aad", "aad (carry interpolate 0.3)"]
    assert "carry interpolate=0.3" in str(jobs[-1])
    assert len({str(job) for job in jobs}) == 3


def test_a_setting_asked_for_by_name_wins_over_the_carry_rule(vectors: str, tmp_path: Path) -> None:
    changes = (*QUICK, "adapt.carry=interpolate=0.7")
    (task,) = make_tasks(jobs_of(vectors, "aad", "one>two", carry="interpolate=0.3", changes=changes), tmp_path, None)
    assert task.plan.label == "aad (carry interpolate 0.7)"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("last=0.5", "'last' takes no value"),
        ("interpolate=much", "share = 'much' is not possible"),
        ("interpolate=2", "a number from 0 to 1"),
        ("lastly", "Known: last, interpolate, along, auto"),
        ("0.5", r"did you mean interpolate=0\.5\?"),
    ],
)
def test_wrong_carry_rules(vectors: str, tmp_path: Path, rule: str, said: str) -> None:
    with pytest.raises(CosdaError, match=said):
        make_tasks(jobs_of(vectors, "aad", "one>two", carry=f"last,{rule}"), tmp_path, None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"methods": "cosdas", "pairs": "all"}, "Did you mean 'cosda'"),
        ({"methods": ","}, "names no method"),
        ({"pairs": "one>twoo"}, "Did you mean 'two'"),
        ({"pairs": "one"}, "source>target"),
        ({"pairs": "o2t"}, "two or three: write more letters"),
        ({"pairs": "o2x"}, "'x' in 'o2x' is no domain of tiny"),
        ({"pairs": "one>one"}, "named twice"),
        ({"pairs": "one>two>three"}, "Use --chains"),
        ({"chains": "defualt"}, "Did you mean 'default'"),
        ({"variant": "author"}, "Did you mean 'authors'"),
        ({"ablate": "no-mixupp"}, "Did you mean 'no-mixup'"),
    ],
)
def test_wrong_requests(vectors: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(CosdaError, match=said):
        jobs_of(vectors, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        (Resources("lokal"), "Did you mean 'local'"),
        (Resources(address="auto"), "--engine ray"),
        (Resources(gpus=2), "one GPU at most"),
    ],
)
def test_wrong_engines(vectors: str, tmp_path: Path, resources: Resources, said: str) -> None:
    with pytest.raises(CosdaError, match=said):
        run_jobs(jobs_of(vectors, "source", "one>two", changes=QUICK), tmp_path, resources)


OWN_ENGINE = """
from cosda.bench import ENGINES
from cosda.bench.scheduler import Ended, Engine
from cosda.bench.worker import Work, do_work


class Here(Engine):
    title = "one run after the other in this process"

    def __init__(self, out, machine):
        self.out, self.machine, self.task = out, machine, None

    @classmethod
    def open(cls, resources, out, machine, say):
        say("somebody else's engine")
        return cls(out, machine)

    def free(self):
        return int(self.task is None)

    def start(self, task):
        self.task = task

    def wait(self, seconds):
        task, self.task = self.task, None
        return [Ended(task, do_work(Work(task.job, task.plan.name, self.out, self.machine)))]


ENGINES["here"] = Here  # the one line
from cosda.__main__ import main
main()
"""


def test_a_program_may_bring_its_own_engine(vectors: str, undisturbed: Path, tmp_path: Path) -> None:
    program = tmp_path / "own.py"
    program.write_text(OWN_ENGINE)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, str(program), "bench", *words], capture_output=True, text=True)

    told = " ".join(call("--help").stdout.split())
    assert "here: one run after the other in this process" in told
    assert "local: processes on this machine" in told
    out, sets = tmp_path / "runs", [word for change in LONGER for word in ("--set", change)]
    done = call(vectors, "--out", str(out), *sets, *LONG_BENCH, "--engine", "here")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[0]) == {"event": "note", "text": "somebody else's engine"}
    assert table(out) == table(undisturbed)
    assert results(out) == results(undisturbed)
    plan = call(vectors, "--out", str(tmp_path / "none"), *sets, "--methods", "source", "--engine", "here", "--dry-run")
    assert ", 1 at a time" in plan.stdout


def test_a_worker_for_every_so_many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosda.bench.local.cores_here", lambda: 8)
    assert local_devices("cpu", None, 1, None) == ["cpu"] * 8
    assert local_devices("cpu", None, 3, None) == ["cpu"] * 2
    assert local_devices("cpu", None, 16, None) == ["cpu"]
    assert local_devices("cpu", 3, 1, None) == ["cpu"] * 3


def test_a_worker_for_every_gpu_or_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert local_devices("auto", None, 1, None) == ["cuda:0", "cuda:1"]
    assert local_devices("auto", None, 1, 0.5) == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert local_devices("auto", 3, 1, None) == ["cuda:0", "cuda:1", "cuda:0"]
    assert local_devices("cuda:1", None, 1, None) == ["cuda:1"]
    assert local_devices("auto", 2, 1, 0) == ["cpu", "cpu"]


# --- What comes next, and how long it takes ---------------------------------------------------------------------------


def test_no_run_waits_for_a_source_model_while_there_is_other_work(vectors: str, tmp_path: Path) -> None:
    jobs = jobs_of(vectors, "source,bn", "one>two,two>one", seeds=2, changes=QUICK)
    tasks = make_tasks(jobs, tmp_path, None)
    first = choose(tasks, [])
    assert first is tasks[0]
    # Another source domain before another seed of the same, so that both can pack their images side by side.
    second = choose(tasks[1:], [first])
    assert second is not None
    assert second.plan.source == "two"
    third = choose([task for task in tasks if task not in (first, second)], [first, second])
    assert third is not None
    assert third.source not in (first.source, second.source)
    assert choose([task for task in tasks if task.source == first.source], [first]) is None
    first.source.mkdir(parents=True)
    (first.source / "done.json").write_text("{}")
    assert choose([task for task in tasks if task.source == first.source], [first]) is not None


def finish(task: Task, seconds: float, source_seconds: float) -> None:
    """Leave what a finished run would, with so many seconds for each epoch."""
    for folder, config, stage, epoch_seconds in (
        (task.path, task.plan.as_json(), 1, seconds),
        (task.source, source_config(task.plan), 0, source_seconds),
    ):
        epochs = (task.plan.adapt("two") if stage else task.plan.source_training).epochs
        each = {"stage": stage, "seconds": epoch_seconds, "images": 20, "peak_bytes": 0}
        facts = [{**each, "epoch": epoch} for epoch in range(epochs)]
        write_json(folder / "config.json", config)
        (folder / "timing.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in facts))
        write_json(folder / "done.json", {})


def test_time_left_follows_the_epochs_of_finished_runs(vectors: str, tmp_path: Path) -> None:
    changes = ("epochs=10", "source.epochs=5")
    tasks = make_tasks(jobs_of(vectors, "nrc,cosda", "one>two", seeds=3, changes=changes), tmp_path, None)
    board = Board(tasks, Onlooker())
    assert board.seconds_left() is None
    assert board.counts == {"done": 0, "running": 0, "failed": 0, "left": 6}
    works = [images_left(task) for task in tasks]
    assert {work.trained for work in works} == {10 * 20}
    assert {work.source for work in works} == {5 * 20}
    looks = FORWARD * works[0].measured * 0.06 / 20  # the source model is the plain network

    board.start(tasks[0])
    finish(tasks[0], 0.5, 0.06)
    board.finish(tasks[0])
    nrc = RUN_SECONDS + 10 * 0.5 + looks
    training = 5 * 0.06
    unknown = nrc - 10 * (0.5 - (0.5 + 0.06) / 2)  # of cosda nothing is known, so all that is known tells
    assert board.seconds_left() == pytest.approx(2 * nrc + 3 * unknown + 2 * training)

    board.start(tasks[3])
    finish(tasks[3], 2.0, 0.06)
    board.finish(tasks[3])
    cosda = RUN_SECONDS + 10 * 2.0 + looks
    assert board.seconds_left() == pytest.approx(2 * nrc + 2 * cosda + 2 * training)

    board.start(tasks[1])
    board.start(tasks[4])
    finish(tasks[4], 2.0, 0.06)
    (tasks[4].path / "done.json").unlink()
    (tasks[4].path / "timing.jsonl").write_text('{"stage":1,"epoch":3,"seconds":2.0,"images":20}\n{"stage":1,"ep')
    both = FORWARD * (10 + 10) * 0.06 / 20  # the test images of both domains
    begun = cosda - 4 * (2.0 + both) - both  # four epochs of it are done, and the source model was measured
    assert board.seconds_left() == pytest.approx((nrc + begun + nrc + cosda + training) / 2)
    board.fail(tasks[1], "no")
    assert board.counts == {"done": 2, "running": 1, "failed": 1, "left": 2}


def test_the_plan_of_the_parent_is_that_of_the_run(vectors: str, tmp_path: Path) -> None:
    jobs = jobs_of(vectors, "cosda,gsfda", "one>two", ablate="no-mi", select="entropy", changes=QUICK)
    outcome = run_jobs(jobs, tmp_path, Resources(workers=1))
    assert not outcome.failed
    tasks = make_tasks(jobs, tmp_path, None)
    assert [run.path for run in outcome.runs] == [task.path for task in tasks]
    assert all(task.state == "done" and task.source_is_ready for task in tasks)
    assert {run.config["select"] for run in outcome.runs} == {"entropy"}


# --- Failures and deaths ----------------------------------------------------------------------------------------------


def test_a_failing_run_does_not_stop_the_others(vectors: str, tmp_path: Path) -> None:
    good, bad = ("source", "bn"), "cosda"  # which alone has a rate to be absurd
    changes = (*QUICK, "lr=1e30", "lr_end=1e30")
    done = bench(vectors, tmp_path, "--methods", f"{bad},{good[0]},{good[1]}", "--pairs", "o2tw", changes=changes)
    assert done.returncode == 1
    told = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    counts = [(event["event"], event["done"], event["failed"]) for event in told]
    assert counts[0] == ("begin", 0, 0)
    assert counts[-1][1:] == (2, 1)
    (last,) = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert last.startswith("failed: cosda, one → two, seed 0: ")
    assert "became unusable" in last
    assert all(name in done.stdout for name in good)

    (task,) = make_tasks(jobs_of(vectors, bad, "one>two", changes=changes), tmp_path, None)
    assert "became unusable" in (task.path / "failed.json").read_text()
    jobs = jobs_of(vectors, ",".join(good), "one>two", changes=changes)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if task.path not in path.parents}
    assert len(run_jobs(jobs, tmp_path).runs) == 2
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


class Assassin(Onlooker):
    """Kills the workers of this process so many times, as soon as a run has come as far as ``moment``."""

    def __init__(self, times: int, moment: str) -> None:
        self.times, self.moment, self.deaths = times, moment, []

    def happened(self, board: Board, event: str, task: Task, reason: str = "") -> None:
        if event == "died":
            self.deaths.append(reason)
        if event == "started" and self.times:
            self.times -= 1
            threading.Thread(target=self._kill, args=(task,)).start()

    def _kill(self, task: Task) -> None:
        reached, done = task.path / self.moment, task.path / "done.json"
        wait_until(lambda: (multiprocessing.active_children() and reached.exists()) or done.exists(), str(task.job))
        for worker in multiprocessing.active_children():
            os.kill(worker.pid or 0, signal.SIGKILL)


def test_a_worker_that_is_killed_costs_nothing_but_time(vectors: str, undisturbed: Path, tmp_path: Path) -> None:
    jobs = jobs_of(vectors, "cosda", "one>two", changes=LONGER)
    assassin = Assassin(2, "checkpoint/last.safetensors")
    outcome = run_jobs(jobs, tmp_path, Resources(workers=1), onlooker=assassin)
    assert not outcome.failed
    assert len(assassin.deaths) == 2
    assert "signal 9 (SIGKILL)" in assassin.deaths[0]
    wanted = results(undisturbed)
    assert {name: wanted[name] == content for name, content in results(tmp_path).items()} == dict.fromkeys(
        results(tmp_path), True
    )


def test_a_run_that_always_kills_its_worker_is_a_failure_with_a_reason(vectors: str, tmp_path: Path) -> None:
    jobs = jobs_of(vectors, "cosda", "one>two", changes=LONGER)
    outcome = run_jobs(jobs, tmp_path, Resources(workers=1), onlooker=Assassin(3, ""))
    assert "died 3 times at the same epoch" in outcome.failed[jobs[0]]
    assert "memory is short" in outcome.failed[jobs[0]]


# --- The demonstration ------------------------------------------------------------------------------------------------


def carry_of(job: Job) -> str | None:
    return next((change.value for change in job.request.changes if change.key == "adapt.carry"), None)


def test_one_seed_is_the_short_demonstration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[Job]] = []

    def note(jobs: list[Job], *rest: object) -> Outcome:
        asked.append(jobs)
        return Outcome([], {})

    monkeypatch.setattr("cosda.bench.demo.run_jobs", note)
    run_demo(tmp_path)
    run_demo(tmp_path, seeds=3)
    short, whole = ([(job.request.method, carry_of(job), job.request.seed) for job in jobs] for jobs in asked)
    slow, bank = ("aad", "interpolate=0.5"), ("aad", "bank")
    assert short == [("source", None, 0), ("aad", None, 0), ("cosda", None, 0), (*slow, 0), (*bank, 0)]
    names = ("source", "shot", "nrc", "aad", "cosda", "cosda+nrc", "cosda+aad")
    assert whole == [(*row, seed) for row in (*((name, None) for name in names), slow, bank) for seed in range(3)]


# --- The command ------------------------------------------------------------------------------------------------------


def test_killed_at_a_random_moment_and_started_again_gives_the_same_table(
    vectors: str, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    process = subprocess.Popen(
        command(vectors, out, *LONG_BENCH, changes=LONGER), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with ended(process):
        wait_for_records(out, int(np.random.default_rng().integers(1, 250)), process)
    assert any(task.state != "done" for task in long_tasks(vectors, out)), "it must have been killed before its end"
    again = bench(vectors, out, *LONG_BENCH, "--quiet", changes=LONGER)
    assert again.returncode == 0, again.stderr
    assert again.stderr == ""
    assert table(out) == table(undisturbed)
    assert results(out) == results(undisturbed)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_kill_stop_everything_at_once(sent: signal.Signals, vectors: str, tmp_path: Path) -> None:
    out, temporary = tmp_path / "runs", tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        command(vectors, out, *LONG_BENCH, changes=LONGER),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    wait_for_records(out, 60, process)
    if sent == signal.SIGINT:
        os.killpg(process.pid, sent)  # as a terminal does it: to the command and to its workers
    else:
        process.send_signal(sent)
    process.send_signal(sent)  # once more, while the first one is obeyed
    _, stderr = process.communicate(timeout=HANG)
    assert process.returncode == 128 + sent
    assert not list(temporary.glob("cosda-*"))
    assert "goes on where the last epoch ended" in stderr
    assert "Traceback" not in stderr
    # A helper of multiprocessing's own may need a moment more.
    wait_until(lambda: not running_in(process.pid), "the end of all processes of the command")


def running_in(session: int) -> list[int]:
    """Processes of a session."""
    found = subprocess.run(["ps", "-o", "pid=", "-s", str(session)], capture_output=True, text=True).stdout
    return [int(word) for word in found.split()]


def wait_for_records(out: Path, lines: int, process: subprocess.Popen[Any]) -> None:
    """Until the runs have recorded so much together."""
    assert wait_until(lambda: lines_recorded(out) >= lines, f"{lines} records in {out}", process)


def long_tasks(vectors: str, out: Path) -> list[Task]:
    return make_tasks(jobs_of(vectors, "source,nrc,cosda", "one>two,two>one", changes=LONGER), out, None)
