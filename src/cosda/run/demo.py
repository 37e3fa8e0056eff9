"""The demonstration: the yardstick and six methods along the embedded chain, over several seeds."""

from __future__ import annotations

from pathlib import Path

from cosda.errors import CosdaError
from cosda.records import Run
from cosda.run.bench import Job, run_jobs
from cosda.run.watch import Watcher

CHAIN = ("print", "outline", "colour", "hand")
# `source` comes first: it trains the source model that all others of its seed wait for.
METHODS = ("source", "shot", "nrc", "aad", "cosda", "cosda+nrc", "cosda+aad")


def run_demo(out: Path, seeds: int, workers: int | None = None, watcher: Watcher | None = None) -> list[Run]:
    """Do all runs, or what is left of them, below ``out``, and return them in the order of the table."""
    jobs = [Job("digits", method, CHAIN, seed) for method in METHODS for seed in range(seeds)]
    outcome = run_jobs(jobs, out / "runs", workers, watcher)
    for job, reason in outcome.failed.items():
        raise CosdaError(f"the run {job} failed: {reason}")
    return outcome.runs
