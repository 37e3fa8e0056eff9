"""The engine `ray`: each run is a task of a Ray cluster, which finds a place for it.

Run folders lie on a file system that all nodes see, so a run whose worker or node has died goes on elsewhere from its
last epoch. Ray is not asked to try again: `drive` does that in the same way for every engine.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosda.bench.local import cores_here
from cosda.bench.scheduler import Ended, Engine, Resources, Say
from cosda.bench.worker import Answer, Work, do_work
from cosda.errors import CosdaError
from cosda.files import own_name, sweep
from cosda.units import duration

if TYPE_CHECKING:  # these load torch
    from cosda.bench.tasks import Task
    from cosda.run.machine import Machine

OBJECT_STORE = 2**27  # bytes; runs send nothing but words
NEWS_SECONDS = 60.0  # after so long without an answer of a node, a person is told what the command waits for
HANG_SECONDS = 1800.0  # a node that has not answered then hangs: on a busy one it takes minutes
KNOCK_SECONDS = 10.0  # the system of a node answers, not Ray, so its load does not matter


@dataclass(frozen=True)
class Place:
    """What a node must have in common with the machine on which the command was started."""

    folder: Path  # where relative paths begin
    token: Path  # a file that was just written beside the run folders
    versions: dict[str, str]

    def check(self) -> None:
        """Go there, or say why runs on this node would not be the same runs."""
        here = os.uname().nodename
        if not self.token.exists():
            raise CosdaError(
                f"the node {here} does not see {self.token.parent}. Run folders must lie on a file system that all "
                "nodes share, at the same path: give --out a folder there."
            )
        if not self.folder.is_dir():
            raise CosdaError(f"the node {here} has no folder {self.folder}: start the command in one that all have.")
        if (found := _versions()) != self.versions:
            raise CosdaError(
                f"the node {here} has {_listed(found)}, and the command {_listed(self.versions)}. "
                "Results would not be the same: install the same versions on all nodes."
            )
        os.chdir(self.folder)


def _knock(address: str) -> None:
    """See whether anybody is there at all; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "://" in address:
        raise _no_cluster(address, "an address is host:port of the cluster's head, or auto.")
    try:
        socket.create_connection((host, int(port)), timeout=KNOCK_SECONDS).close()
    except OSError as error:
        raise _no_cluster(address, f"{error.strerror or error}.") from None


def _no_cluster(address: str, reason: str) -> CosdaError:
    return CosdaError(
        f"no Ray cluster at '{address}': {reason} Start one with 'ray start --head' and give its host:port, "
        "or leave --address out."
    )


class RayEngine(Engine):
    """Runs as tasks of a cluster, no more at a time than its nodes have room for."""

    title = "tasks of a Ray cluster"

    @classmethod
    def open(cls, resources: Resources, out: Path, machine: Machine, say: Say) -> RayEngine:
        """Join the cluster at the address, or start one on this machine that ends with the command."""
        address = resources.address
        ray = _import_ray(alone=address is None)
        options: dict[str, Any] = {}
        if address is None:
            cpus = cls.slots(resources, out, machine) * resources.cores
            options = {"num_cpus": cpus, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
        elif address != "auto":
            _knock(address)
        try:
            ray.init(address=address or "local", logging_level="error", log_to_driver=False, **options)
        except Exception as error:  # Ray's own errors here have no class in common
            raise _no_cluster(address or "local", str(error).strip().splitlines()[0]) from None
        engine = cls(ray, resources, out, machine)
        if address is None and (open_to := [node for node in _addresses(ray) if node != LOOPBACK]):
            say(
                f"Ray was loaded before cosda, so the cluster that starts here listens on {', '.join(open_to)} and not "
                f"on this machine alone. Set {ALONE}=0 before Ray is loaded."
            )
        try:
            engine.check_nodes(say)
        except BaseException:
            engine.close()
            raise
        return engine

    @classmethod
    def slots(cls, resources: Resources, out: Path, machine: Machine) -> int:
        """How many runs it would do at a time; a cluster on this machine need not be started to know it."""
        if resources.address is None:
            return resources.workers or max(1, cores_here() // resources.cores)
        out.mkdir(parents=True, exist_ok=True)  # to see whether all nodes see it
        return super().slots(resources, out, machine)

    def __init__(self, ray: Any, resources: Resources, out: Path, machine: Machine) -> None:
        self.ray, self.workers, self.cores = ray, resources.workers, resources.cores
        wanted = 1.0 if resources.gpus is None else resources.gpus
        has_gpus = machine.device != "cpu" and ray.cluster_resources().get("GPU", 0) > 0
        self.gpus = wanted if has_gpus else 0.0
        # Ray shows each task the GPUs that it may use, and no other.
        self.machine = replace(machine, device="cuda" if self.gpus else "cpu")
        self.out = out
        self.place = Place(Path.cwd(), _new_token(out), _versions())
        self._running: dict[Any, Task] = {}

    def check_nodes(self, say: Say) -> None:
        """Ask every node whether runs can be done there; say so before the first has failed."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        asked = {
            self._remote(_check, 0, 0)
            .options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
            .remote(self.place): node["NodeManagerHostname"]
            for node in self.ray.nodes()
            if node["Alive"]
        }
        waited = 0.0
        while asked:
            ready, _ = self.ray.wait(list(asked), timeout=NEWS_SECONDS)
            for reference in ready:
                self._judge(reference, asked.pop(reference))
            if not ready:
                waited += NEWS_SECONDS
                silent = ", ".join(sorted(set(asked.values())))
                if waited >= HANG_SECONDS:
                    raise CosdaError(
                        f"the cluster's nodes {silent} have not answered within {duration(waited)}. Restart Ray "
                        "there; 'ray status' shows the nodes."
                    )
                say(f"waiting for an answer of the cluster's nodes {silent}, since {duration(waited)}")
        if self._slots() == 0:
            raise CosdaError(
                f"no node of the cluster has room for a run of {self.cores} cores and {self.gpus:g} GPUs. "
                "Lower --cores-per-run or --gpus-per-run."
            )

    def _judge(self, reference: Any, node: str) -> None:
        """Raise what a node has to complain about."""
        try:
            complaint = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            raise CosdaError(
                f"the node {node} of the cluster cannot run cosda: {str(error).strip().splitlines()[-1]}. "
                "Install the same cosda on all nodes."
            ) from None
        if complaint:
            raise CosdaError(complaint)

    def free(self) -> int:
        """Places on nodes that are alive now; nodes may come and go."""
        return self._slots() - len(self._running)

    def start(self, task: Task) -> None:
        """Hand a run to the cluster."""
        work = Work(task.job, task.plan.name, self.out, self.machine)
        self._running[self._remote(_run, self.cores, self.gpus).remote(self.place, work)] = task

    def wait(self, seconds: float) -> list[Ended]:
        """Answers of tasks, and the deaths of their workers or nodes."""
        ready, _ = self.ray.wait(list(self._running), num_returns=1, timeout=seconds)
        ended = []
        for reference in ready:
            task = self._running.pop(reference)
            try:
                ended.append(Ended(task, self.ray.get(reference)))
            except self.ray.exceptions.RayTaskError as error:  # an error of ours that `do_work` did not foresee
                ended.append(Ended(task, Answer(str(error))))
            except self.ray.exceptions.RayError as error:
                ended.append(Ended(task, Answer(), _death(error)))
        return ended

    def close(self) -> None:
        """Stop all tasks and leave the cluster; one that was started here ends."""
        for reference in self._running:
            with suppress(self.ray.exceptions.RayError):
                self.ray.cancel(reference, force=True)
        self.place.token.unlink(missing_ok=True)
        self.ray.shutdown()

    def _remote(self, function: Any, cores: float, gpus: float) -> Any:
        return self.ray.remote(num_cpus=cores, num_gpus=gpus, max_retries=0)(function)

    def _slots(self) -> int:
        found = 0
        for node in self.ray.nodes():
            if node["Alive"]:
                has = node["Resources"]
                room = has.get("CPU", 0) // self.cores
                found += int(min(room, has.get("GPU", 0) // self.gpus) if self.gpus else room)
        return min(found, self.workers) if self.workers else found


def _new_token(out: Path) -> Path:
    """A file that this command alone has written; those of commands that were killed on this machine go."""
    sweep(out, ".cosda-")
    token = out / own_name(".cosda-")
    token.touch()
    return token


def _check(place: Place) -> str:
    try:
        place.check()
    except CosdaError as error:
        return str(error)
    return ""


def _run(place: Place, work: Work) -> Answer:
    """One run in a Ray worker; a node that came later is checked here."""
    complaint = _check(place)
    return Answer(complaint) if complaint else do_work(work)


def _addresses(ray: Any) -> list[str]:
    return [str(node["NodeManagerAddress"]) for node in ray.nodes() if node["Alive"]]


def _death(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"Ray says {type(error).__name__}" + (f": {lines[0]}" if lines else "")


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("cosda", "torch")}


def _listed(versions: dict[str, str]) -> str:
    return " and ".join(f"{name} {number}" for name, number in versions.items())


ALONE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0: a cluster of one machine, as Ray has it there and not on Linux
LOOPBACK = "127.0.0.1"
TOKEN = "RAY_AUTH_TOKEN"
_OWN_TOKEN = secrets.token_hex(32)


def _import_ray(alone: bool = False) -> Any:
    """Ray, made ready to join a cluster; or to start one here that is ``alone``: nobody else can reach or use it."""
    if alone:
        # Ray gives a node an address that other machines see, whatever one asks for, and then listens on all of them.
        if "ray" not in sys.modules:
            os.environ.setdefault(ALONE, "0")
        # Who has an account here needs this word. Ray would write one into the user's home folder, for all to read.
        if "RAY_AUTH_TOKEN_PATH" not in os.environ:
            os.environ.setdefault(TOKEN, _OWN_TOKEN)
    elif os.environ.get(TOKEN) == _OWN_TOKEN:  # of a cluster that has ended
        del os.environ[TOKEN]
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # says nothing to anybody
    # A cluster that starts here: its workers are no less urgent than those of the engine `local`. Ray would let them
    # come last, and on a busy machine they would then hardly ever come.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns of a change to come
    try:
        import ray
    except ImportError:
        raise CosdaError("--engine ray needs Ray: pip install 'cosda[ray]'.") from None
    return ray
