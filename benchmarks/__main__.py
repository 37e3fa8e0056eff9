"""Run the benchmarks that are named, or all; print ratios and write them as JSON."""

from __future__ import annotations

import json
import platform
import sys
from importlib import import_module
from pathlib import Path

import torch

ALL = ("step", "views", "memory", "neighbours")
RESULTS = Path("out") / "benchmarks"


def main() -> None:
    for name in sys.argv[1:] or ALL:
        module = import_module(f"benchmarks.{name}")
        print(module.__doc__.strip().splitlines()[0])
        ratios = module.measure()
        for case, ratio in ratios.items():
            print(f"  {case}: {ratio:.2f}×")
        RESULTS.mkdir(parents=True, exist_ok=True)
        facts = {"ratios": ratios, "torch": torch.__version__, "machine": platform.machine()}
        (RESULTS / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
