"""Run the benchmarks that are named, or all; print what they found and write it as JSON; make the table of it.

python -m benchmarks                     # all: an hour or more on two cores
python -m benchmarks step views          # some
python -m benchmarks --quick             # all at tiny sizes: does everything work? The numbers mean nothing
python -m benchmarks --table --into docs/performance.md
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.facts import BUSY, machine, put_into, table, write

ALL = (
    "step", "epoch", "views", "adaptation", "arithmetic", "evaluation", "neighbours", "teacher", "scaling", "startup",
    "memory", "routing", "deployed", "precision",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(ALL)}; all if none is given")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see whether everything works")
    parser.add_argument("--out", type=Path, default=Path("out") / "benchmarks", help="folder of the JSON files")
    parser.add_argument("--table", action="store_true", help="measure nothing; print the table of what lies in --out")
    parser.add_argument("--into", type=Path, help="with --table: put it between the two markers of this page")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.names if name not in ALL]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(ALL)}")
    names = tuple(chosen.names) or ALL
    if chosen.table or chosen.into:
        own = getattr(import_module(f"benchmarks.{names[0]}"), "table", None) if len(names) == 1 else None
        text = own(chosen.out) if own else table(chosen.out, names)
        if chosen.into:
            put_into(chosen.into, text)
        else:
            print(text)
        return
    where = machine()  # once: what is measured afterwards has a share in the load
    if where["load"] > BUSY:
        print(f"The machine is not quiet: load average {where['load']:.1f}. Ratios suffer less than seconds.")
    for name in names:
        run(name, chosen.out, where, chosen.quick)


def run(name: str, out: Path, where: dict[str, Any], quick: bool) -> None:
    """Measure one, print and write it."""
    module = import_module(f"benchmarks.{name}")
    print(f"{name}: {(module.__doc__ or '').strip().splitlines()[0]}", flush=True)
    facts = module.measure(quick)
    for fact in facts:
        verdict = {True: ": reached", False: ": NOT reached", None: ""}[None if quick else fact.met]
        goal = f"  [{fact.target}{verdict}]" if fact.target else ""
        print(f"  {fact.case}: {fact.reached}{goal}", flush=True)
    write(out / f"{name}.json", name, facts, where, quick)


if __name__ == "__main__":
    main()
