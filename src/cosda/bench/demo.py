"""The demonstration: the baseline, six methods and the slow carry along the embedded chain, over several seeds."""

from __future__ import annotations

from pathlib import Path

from cosda.bench import Job, Onlooker, Resources, run_jobs
from cosda.config.request import Request
from cosda.errors import CosdaError
from cosda.records.run import Run
from cosda.run.machine import Machine

CHAIN = ("print", "outline", "colour", "hand")
METHODS = ("source", "shot", "nrc", "aad", "cosda", "cosda+nrc", "cosda+aad")
SLOW_CARRY = ("aad", "interpolate=0.5")  # what we recommend: docs/carry.md


def run_demo(out: Path, seeds: int, workers: int | None = None, onlooker: Onlooker | None = None) -> list[Run]:
    """Do all runs, or what is left of them, below ``out``, and return them in the order of the table."""
    rows = [*((method, None) for method in METHODS), SLOW_CARRY]
    jobs = [
        Job("digits", Request.of(method, CHAIN, seed=seed, carry=rule))
        for method, rule in rows
        for seed in range(seeds)
    ]
    outcome = run_jobs(jobs, out / "runs", Resources(workers=workers), Machine("cpu"), onlooker)
    for job, reason in outcome.failed.items():
        raise CosdaError(f"the run {job} failed: {reason}")
    return outcome.runs
