"""Many runs side by side, one a core: each is a run folder like any other, so what is done is not done again."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from pathlib import Path

from cosda.data.benchmarks import load
from cosda.data.domain import Benchmark
from cosda.errors import CosdaError, nearest
from cosda.methods import METHODS, method_class
from cosda.records import Run, read_run
from cosda.run.api import run_chain
from cosda.run.prepare import Machine
from cosda.run.watch import Watcher


@dataclass(frozen=True)
class Job:
    """One run."""

    data: str
    method: str
    domains: tuple[str, ...]
    seed: int
    ablation: str | None = None
    variant: str | None = None
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [self.method, self.variant, self.ablation, " → ".join(self.domains), f"seed {self.seed}"]
        return ", ".join(word for word in words if word)


@dataclass(frozen=True)
class Outcome:
    """The runs that came to their end, in the order of the jobs, and why the others did not."""

    runs: list[Run]
    failed: dict[Job, str]


def expand(
    data: str,
    methods: str = "all",
    pairs: str = "",
    chains: str = "",
    seeds: int = 1,
    variant: str | None = None,
    changes: Iterable[str] = (),
) -> list[Job]:
    """All combinations, sources first.

    ``methods``: names with commas, or all. ``pairs``: all, or ``a>b,a>c``. ``chains``: default (all domains in their
    order), or ``a>b>c,c>b>a``.
    """
    benchmark = _open(data)
    names = list(METHODS) if methods == "all" else [name.strip() for name in methods.split(",")]
    for name in names:
        method_class(name)
    wanted = _pairs(benchmark, pairs) + _chains(benchmark, chains)
    if not wanted:
        raise CosdaError("nothing to run: give --pairs all, --chains default, or name some, such as --pairs 'a>b,b>a'.")
    kept = {name: variant if variant in method_class(name).variants else None for name in names}
    # By seed and chain first, so that workers do not all wait for one source model.
    return [
        Job(data, name, chain, seed, variant=kept[name], changes=tuple(changes))
        for name in names
        for chain in wanted
        for seed in range(seeds)
    ]


def _pairs(benchmark: Benchmark, text: str) -> list[tuple[str, ...]]:
    if text == "all":
        return list(permutations(benchmark.domains, 2))
    return _read(benchmark, text)


def _chains(benchmark: Benchmark, text: str) -> list[tuple[str, ...]]:
    return [tuple(benchmark.domains)] if text == "default" else _read(benchmark, text)


def _read(benchmark: Benchmark, text: str) -> list[tuple[str, ...]]:
    found = [tuple(word.strip() for word in chain.split(">")) for chain in text.split(",") if chain.strip()]
    for chain in found:
        benchmark.ordered(chain)
        if len(chain) < 2:
            raise CosdaError(
                f"'{chain[0]}' is not a chain: write source>target.{nearest(chain[0], ('all', 'default'))}"
            )
    return found


def run_jobs(
    jobs: Sequence[Job],
    out: Path,
    workers: int | None = None,
    watcher: Watcher | None = None,
    cache: Path | None = None,
) -> Outcome:
    """Do all runs, or what is left of them; one that fails does not stop the others."""
    watcher = watcher or Watcher()
    watcher.begin("runs", len(jobs), "runs")
    # A forked copy of a program that has used torch may hang; a spawned one starts afresh.
    spawn = multiprocessing.get_context("spawn")
    done: dict[Job, Path] = {}
    failed: dict[Job, str] = {}
    with ProcessPoolExecutor(workers or os.cpu_count() or 1, mp_context=spawn) as pool:
        waiting = {pool.submit(_run, job, out, cache): job for job in jobs}
        try:
            for future in as_completed(waiting):
                path, reason = future.result()
                if path is not None:
                    done[waiting[future]] = path
                else:
                    failed[waiting[future]] = reason
                watcher.advance()
        except BaseException:  # Ctrl-C too: begin nothing new; the same command goes on later
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    watcher.end()
    return Outcome([read_run(done[job]) for job in jobs if job in done], failed)


def _run(job: Job, out: Path, cache: Path | None) -> tuple[Path | None, str]:
    """One run in a worker, on one thread: as many runs as cores go on at a time."""
    try:
        run = run_chain(
            _open(job.data),
            job.method,
            domains=job.domains,
            changes=job.changes,
            variant=job.variant,
            ablation=job.ablation,
            seed=job.seed,
            out=out,
            machine=Machine("cpu", threads=1, cache=cache),
        )
    except CosdaError as error:
        return None, str(error)
    except Exception:
        return None, traceback.format_exc()
    return run.path, ""


@lru_cache(maxsize=2)
def _open(data: str) -> Benchmark:
    return load(data)
