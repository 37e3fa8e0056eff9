"""The demonstration: yardsticks, CoSDA and CoSDA without dual speed along the embedded chain, over several seeds."""

from __future__ import annotations

from pathlib import Path

from cosda.data.digits import load
from cosda.records import Run
from cosda.run.api import run_chain
from cosda.run.prepare import Machine
from cosda.run.watch import Watcher

CHAIN = ("print", "outline", "colour", "hand")
ROWS: tuple[tuple[str, str | None], ...] = (
    ("source", None),
    ("bn", None),
    ("cosda", None),
    ("cosda", "no-dual-speed"),
)


def run_demo(out: Path, seeds: int, machine: Machine, watcher: Watcher) -> list[Run]:
    """Do all runs, or what is left of them, below ``out``."""
    benchmark = load()
    runs = []
    for seed in range(seeds):
        for method, ablation in ROWS:
            runs.append(
                run_chain(
                    benchmark,
                    method,
                    domains=CHAIN,
                    ablation=ablation,
                    seed=seed,
                    out=out / "runs",
                    machine=machine,
                    watcher=watcher,
                )
            )
    return runs
