"""The engine `ray`: the same results as the local one, also when a node dies in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from benchmarks.alone import alone

from benches import LONG_BENCH, LONGER, bench, command, events, jobs_of, results, table
from cosda.api import run_request
from cosda.bench import ray as ray_engine
from cosda.bench.board import Onlooker
from cosda.bench.ray import Place, _import_ray, _versions
from cosda.bench.run import run_jobs
from cosda.bench.scheduler import Resources
from cosda.config.request import Request, parse_changes
from cosda.errors import CosdaError
from cosda.run.machine import Machine
from waiting import HANG, ended, wait_until

if find_spec("ray") is None:
    pytest.skip("Ray is not installed: pip install 'cosda[ray]'", allow_module_level=True)


def test_a_cluster_on_this_machine_gives_the_same_bits(vectors: str, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    done = bench(vectors, out, *LONG_BENCH, "--engine", "ray", "--workers", "2", changes=LONGER)
    assert done.returncode == 0, done.stderr
    assert {event["event"] for event in events(done.stderr)} == {"begin", "started", "finished"}
    assert table(out) == table(undisturbed)
    assert results(out) == results(undisturbed)


@contextmanager
def sigterm_kept() -> Iterator[None]:
    """A cluster changes what SIGTERM does for the whole process."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def cluster() -> Iterator[Any]:
    """A head and a second node, with a core each."""
    _import_ray()  # sets its environment
    from ray.cluster_utils import Cluster

    quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    few = {"num_cpus": 1, "object_store_memory": 2**27, "include_dashboard": False}
    with sigterm_kept():
        started = Cluster(initialize_head=True, head_node_args={**few, "_system_config": quick})
        started.second = started.add_node(num_cpus=1, object_store_memory=2**27)
        try:
            yield started
        finally:
            started.shutdown()


# Two runs, and so one on each node, for a while.
NODE_WORDS = ("--methods", "cosda", "--pairs", "one>two,two>one", "--engine", "ray")
NODE_CHANGES = ("epochs=300", *LONGER[1:])


def killed_in_the_middle(vectors: str, out: Path) -> bool:
    """Do a benchmark on two nodes and kill one while a run is at work there; False where that run was too quick."""
    with cluster() as nodes:
        words = command(vectors, out, *NODE_WORDS, "--address", nodes.address, changes=NODE_CHANGES)
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        with ended(process):
            raylet = nodes.second.all_processes["raylet"][0].process.pid
            wait_until(lambda: has_begun(run_of(raylet, out)), "a run on the second node", process)
            nodes.remove_node(nodes.second, allow_graceful=False)
            _, stderr = process.communicate(timeout=HANG)
    assert process.returncode == 0, stderr
    died = [event for event in events(stderr) if event["event"] == "died"]
    assert all("Ray says" in event["reason"] for event in died)
    return len(died) == 1


def run_of(raylet: int, out: Path) -> Path | None:
    """The run folder whose lock a worker of a node holds."""
    for children in Path(f"/proc/{raylet}/task").glob("*/children"):
        for worker in read(children).split():
            for file in Path(f"/proc/{worker}/fd").glob("*"):
                with suppress(OSError):
                    lock = file.readlink()
                    if lock.parent == out and lock.suffix == ".lock":
                        return lock.with_suffix("")
    return None


def read(path: Path) -> str:
    """A file of /proc, or nothing if its process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


def has_begun(run: Path | None) -> bool:
    """Whether a run has finished an epoch, and so has something to go on from."""
    return run is not None and (run / "timing.jsonl").exists()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the workers of a node in /proc")
def test_a_node_that_is_killed_costs_nothing_but_time(vectors: str, tmp_path: Path) -> None:
    tries = (tmp_path / f"disturbed-{number}" for number in range(4))
    out = next((out for out in tries if killed_in_the_middle(vectors, out)), None)
    assert out is not None, "no run was ever on the node that was killed"
    undisturbed = tmp_path / "undisturbed"
    for chain in (("one", "two"), ("two", "one")):  # by no engine at all
        request = Request("cosda", chain, parse_changes(NODE_CHANGES))
        run_request(vectors, request, undisturbed, Machine("cpu", threads=1))
    assert table(out) == table(undisturbed)
    assert results(out) == results(undisturbed)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:10001", "somewhere"])
def test_a_cluster_that_is_not_there(vectors: str, tmp_path: Path, address: str) -> None:
    jobs = jobs_of(vectors, "source", "one>two", changes=LONGER)
    with pytest.raises(CosdaError, match=f"no Ray cluster at '{address}'"):
        run_jobs(jobs, tmp_path, Resources("ray", address=address))


class Notes(Onlooker):
    """Remembers what a person is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


def family(process: int) -> Iterator[int]:
    """A process, those that it started, and so on."""
    yield process
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in read(children).split():
            yield from family(int(child))


def listening(process: int) -> Iterator[str]:
    """The addresses, in hexadecimal, at which a process waits for connections."""
    found = {}
    for kind in ("tcp", "tcp6"):
        for line in read(Path(f"/proc/{process}/net/{kind}")).splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A":
                found[f"socket:[{inode}]"] = local.partition(":")[0]
    for file in Path(f"/proc/{process}/fd").glob("*"):
        with suppress(OSError):
            if (name := str(file.readlink())) in found:
                yield found[name]


# 127.0.0.1, as Linux writes it, and the same as an address of IPv6.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_a_node_that_does_not_answer_and_is_open_to_this_machine_alone(vectors: str, tmp_path: Path) -> None:
    alone(no_answer, vectors, tmp_path)  # where nobody has loaded Ray yet: it reads once where it is to listen


def no_answer(vectors: str, folder: Path) -> None:
    """Begin a benchmark on a cluster whose node has next to no time to answer, and look at its sockets."""
    listened: dict[str, set[str]] = {}
    addresses = ray_engine._addresses

    def look(ray: Any) -> list[str]:
        """What is called when the cluster is there."""
        for process in family(os.getpid()):
            for address in listening(process):
                listened.setdefault(address, set()).add(read(Path(f"/proc/{process}/comm")).strip())
        return addresses(ray)

    jobs, notes = jobs_of(vectors, "source", "one>two", changes=LONGER), Notes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_engine, "_addresses", look)
        patch.setattr(ray_engine, "NEWS_SECONDS", 0.001)
        patch.setattr(ray_engine, "HANG_SECONDS", 0.003)
        with pytest.raises(CosdaError, match=r"have not answered within 0\.0 s\. Restart Ray there"):
            run_jobs(jobs, folder, Resources("ray", workers=1), onlooker=notes)
    assert len(notes.texts) == 2, notes.texts
    assert "waiting for an answer of the cluster's nodes" in notes.texts[0]
    if Path("/proc/net/tcp").exists():
        assert set(listened) <= LOOPBACK, listened
        assert {"gcs_server", "raylet"} <= set().union(*listened.values())
    assert not _import_ray().is_initialized()
    assert not list(folder.glob(".cosda-*"))


def test_a_node_must_see_the_runs_and_have_the_same_versions(tmp_path: Path) -> None:
    token = tmp_path / "token"
    same = Place(tmp_path, token, _versions())
    before = Path.cwd()
    with pytest.raises(CosdaError, match=f"does not see {tmp_path}. Run folders must lie on a file system"):
        same.check()
    token.touch()
    with pytest.raises(CosdaError, match=r"cosda 0\.0\.0.*install the same versions"):
        Place(tmp_path, token, {**_versions(), "cosda": "0.0.0"}).check()
    with pytest.raises(CosdaError, match="start the command in one that all have"):
        Place(tmp_path / "elsewhere", token, _versions()).check()
    try:
        same.check()
        assert Path.cwd() == tmp_path
    finally:
        os.chdir(before)


def test_a_killed_command_goes_on_with_the_same_table(vectors: str, undisturbed: Path, tmp_path: Path) -> None:
    out, words = tmp_path / "runs", (*LONG_BENCH, "--engine", "ray", "--workers", "2")
    process = subprocess.Popen(
        command(vectors, out, *words, changes=LONGER), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with ended(process):
        # Two runs have finished an epoch.
        assert wait_until(lambda: len(list(out.glob("*/timing.jsonl"))) >= 2, "two runs under way", process)
    assert len(list(out.glob("*/done.json"))) < len(list(undisturbed.glob("*/done.json")))
    again = bench(vectors, out, *words, changes=LONGER)
    assert again.returncode == 0, again.stderr
    assert table(out) == table(undisturbed)
    assert results(out) == results(undisturbed)
