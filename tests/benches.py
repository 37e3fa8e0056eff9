"""Benchmarks small enough for tests, as commands and as what they leave behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from cosda.bench.jobs import Job, expand
from cosda.config.request import Request, parse_changes
from cosda.records.run import find_runs
from cosda.report import render_report
from tiny import tiny_benchmark

QUICK = ("epochs=1", "source.epochs=1", "network.bottleneck=8")
LONGER = ("epochs=25", "source.epochs=5", "network.bottleneck=8")


LONG_BENCH = ("--methods", "source,nrc,cosda", "--pairs", "one>two,two>one")


def write_vectors(path: Path) -> str:
    """The tiny benchmark of feature vectors as a file, which workers can open."""
    arrays = {}
    for domain in tiny_benchmark(features=True):
        assert domain.labels is not None
        for split, positions in (("train", domain.train), ("test", domain.test)):
            arrays[f"{domain.name}_{split}_features"] = domain.items[positions]  # type: ignore[index]
            arrays[f"{domain.name}_{split}_labels"] = domain.labels[positions]
    np.savez(path, **arrays)
    return str(path)


def command(data: str, out: Path, *options: str, changes: tuple[str, ...] = QUICK) -> list[str]:
    """`cosda bench` as a process of its own."""
    sets = [word for change in changes for word in ("--set", change)]
    # Tests that run in the background hand their deafness for Ctrl-C down to their processes.
    hear = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{hear}; from cosda.__main__ import main; main()"
    return [sys.executable, "-c", program, "bench", data, "--out", str(out), *sets, *options]


def bench(data: str, out: Path, *options: str, changes: tuple[str, ...] = QUICK) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(command(data, out, *options, changes=changes), capture_output=True, text=True)


def events(stderr: str) -> list[dict[str, Any]]:
    """What a command told, line by line; anything but JSON is an error."""
    return [json.loads(line) for line in stderr.splitlines()]


def table(out: Path) -> str:
    """The report of all runs below a folder."""
    return render_report(find_runs([out]), "csv")


def files_now(out: Path) -> list[Path]:
    """Files below a folder in which others are at work; unlike `rglob`, this survives a folder that vanishes."""
    return [Path(folder) / name for folder, _, names in os.walk(out) for name in names]


def lines_recorded(out: Path) -> int:
    """What the runs below a folder have recorded together so far."""
    return sum(path.read_bytes().count(b"\n") for path in files_now(out) if path.name == "records.jsonl")


def results(out: Path) -> dict[str, bytes]:
    """All files that equal runs have in common: weights, records, settings; not the time that things took."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name != "timing.jsonl" and path.suffix != ".lock"
    }


def jobs_of(data: str, methods: str = "all", pairs: str = "", chains: str = "", **options: Any) -> list[Job]:
    """The jobs of a benchmark, as a command would ask for them; ``changes`` are texts as of --set."""
    shared = {key: options.pop(key) for key in ("variant", "select") if key in options}
    request = Request(changes=parse_changes(options.pop("changes", ())), **shared)
    return expand(data, request, methods=methods, pairs=pairs, chains=chains, **options)
