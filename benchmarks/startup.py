"""How long until something happens: `cosda --help`, and a run with a warm cache until its first step."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.alone import alone
from benchmarks.facts import Fact
from benchmarks.images import write_jpegs
from benchmarks.timing import Timing, interleaved, spread

IMAGES = 500

# Ends the process as soon as training begins, or when its first step is done.
PROGRAM = """
import os, sys
from pathlib import Path
from cosda import api
from cosda.run.machine import Machine
from cosda.watch import Watcher

class FirstStep(Watcher):
    training = False
    def begin(self, task, steps, unit="steps"):
        self.training = unit == "steps"
        if self.training and sys.argv[3] == "begins":
            os._exit(0)
    def advance(self, steps=1, images=0, values=None):
        if self.training:
            os._exit(0)

folder = Path(sys.argv[1])
api.adapt(folder / "model", folder / "images", out=folder / "runs" / sys.argv[2], watcher=FirstStep(),
          machine=Machine(cache=folder / "cache"))
sys.exit("the run ended without a step")
"""


def measure(quick: bool = False) -> list[Fact]:
    """Seconds of whole processes, each from its start."""
    rounds, images = (1, 40) if quick else (7, IMAGES)  # fewer than classes are not adapted to
    cases = {"small ResNet, 32 px": ("small", 32)}
    if not quick:
        cases["ResNet-18, 128 px"] = ("resnet18", 128)
    runs = count()
    candidates: dict[str, Callable[[], object]] = {
        "python": lambda: _run("-c", "pass"),
        "torch": lambda: _run("-c", "import torch"),
        "help": lambda: _run("-c", "from cosda.__main__ import main; main()", "--help"),
    }
    with tempfile.TemporaryDirectory(prefix="cosda-benchmark-") as folder:
        for name, (encoder, side) in cases.items():
            alone(prepare, Path(folder) / encoder, encoder, side, images)
            for until in ("begins", "done"):
                candidates[f"{name}, {until}"] = partial(_first_step, str(Path(folder) / encoder), runs, until)
        timing = interleaved(candidates, rounds, warm=0 if quick else 1)
    facts = [_seconds("cosda --help", "help", timing, 0.3)]
    for name in cases:
        run = f"a run of {images} packed images, {name}"
        facts.append(_seconds(f"{run}, until its first step", f"{name}, begins", timing, 5))
        facts.append(_seconds(f"{run}, until that is done", f"{name}, done", timing))
    return facts


def _seconds(case: str, name: str, timing: Timing, most: float | None = None) -> Fact:
    return Fact.of(case, spread(list(timing.rounds[name])), unit="s", most=most, seconds=timing.medians)


def _first_step(folder: str, runs: Iterator[int], until: str) -> None:
    # Each in a new run folder, or it would go on where another stopped.
    _run("-c", PROGRAM, folder, str(next(runs)), until)


def prepare(folder: Path, encoder: str, side: int, images: int) -> None:
    """A model and images without labels."""
    from cosda.models.architecture import Architecture
    from cosda.models.artifact import Model
    from cosda.preprocessing import Preprocessing

    architecture = Architecture(encoder, 256, 31)
    classes = tuple(f"class {number}" for number in range(31))
    Model(architecture.build(), architecture, classes, Preprocessing(size=side)).save(folder / "model")
    write_jpegs(folder / "images", images)


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
