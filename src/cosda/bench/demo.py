"""The demonstration along the embedded chain: a short one with one seed, everything with several."""

from __future__ import annotations

from pathlib import Path

from cosda.bench.board import Onlooker
from cosda.bench.jobs import Job
from cosda.bench.run import run_jobs
from cosda.bench.scheduler import Resources
from cosda.config.request import Request
from cosda.errors import CosdaError
from cosda.records.run import Run
from cosda.run.machine import Machine

CHAIN = ("print", "outline", "colour", "hand")
SHORT = ("source", "aad", "cosda")  # the baseline, what adapts well and forgets, and what does not forget
METHODS = ("source", "shot", "nrc", "aad", "cosda", "cosda+nrc", "cosda+aad")
CARRIED = (("aad", "interpolate=0.5"), ("aad", "bank"))  # what adapts well with rules against forgetting: docs/carry.md


def run_demo(out: Path, seeds: int = 1, workers: int | None = None, onlooker: Onlooker | None = None) -> list[Run]:
    """Do all runs, or what is left of them, below ``out``, and return them in the order of the table."""
    rows = [*((method, None) for method in (SHORT if seeds == 1 else METHODS)), *CARRIED]
    asked = [Request.of(method, CHAIN, seed=seed, carry=rule) for method, rule in rows for seed in range(seeds)]
    jobs = [Job("digits", request) for request in asked]
    outcome = run_jobs(jobs, out / "runs", Resources(workers=workers), Machine("cpu"), onlooker)
    for job, reason in outcome.failed.items():
        raise CosdaError(f"the run {job} failed: {reason}")
    return outcome.runs
