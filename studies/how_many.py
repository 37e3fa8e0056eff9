"""How many unlabelled images an adaptation needs: `digits`, from `print` to each other domain, with a part of its images.

    python studies/how_many.py out/studies/how-many                                              # prints the table
    python studies/how_many.py out/studies/how-many --into docs/guides/how-many-images.md        # or puts it into the page

AaD with the domain bank and CoSDA, as `cosda run` does them, but with so many training images of the target; always all
test images. A run that is there already is only read, so a study that was stopped goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import numpy as np
from tables import markdown, put_into

import cosda

SOURCE = "print"
COUNTS = (20, 50, 100, 200, 400, 1200)  # 1200 are all of `outline` and `colour`; `hand` has 1198
METHODS = {"aad": "bank", "cosda": "last"}  # and the carry rule of each
SEEDS = 3
# Nobody looks at the epochs in between, so nothing is measured there; the models are the same.
SETTINGS = {"adapt.measure": "target", "adapt.validate": 0}


@dataclass(frozen=True)
class Outcome:
    """One adaptation in percent: the new domain before and after, and what the source lost."""

    before: float
    after: float
    lost: float


def part(benchmark: cosda.Benchmark, target: str, count: int, seed: int) -> cosda.Benchmark:
    """The benchmark with the source and so many training images of one target, drawn at random; fewer are part of more."""
    domain = benchmark[target]
    order = np.random.default_rng(seed).permutation(domain.train)
    chosen = replace(domain, train=np.sort(order[:count]))
    return replace(benchmark, domains={SOURCE: benchmark[SOURCE], target: chosen})


def outcomes(
    benchmark: cosda.Benchmark, method: str, count: int, out: Path, seeds: int = SEEDS
) -> Iterator[Outcome]:
    """Of all targets and seeds."""
    machine = cosda.Machine(threads=1)
    for seed in range(seeds):
        model = cosda.train_source(benchmark, SOURCE, seed=seed, out=out, machine=machine).model
        for target in [name for name in benchmark.domains if name != SOURCE]:
            run = cosda.run_chain(
                part(benchmark, target, count, seed),
                method,
                carry=METHODS[method],
                seed=seed,
                settings=SETTINGS,
                model=model,
                out=out,
                machine=machine,
            )
            matrix = run.matrix()
            assert matrix is not None
            (kept, before), (left, after) = matrix
            yield Outcome(100 * before, 100 * after, 100 * (kept - left))


def row(done: Sequence[Outcome]) -> list[str]:
    """What the page tells of a method with so many images."""
    gains = [one.after - one.before for one in done]
    return [f"{mean(one.after for one in done):.1f}", f"{min(gains):+.1f}", f"{mean(one.lost for one in done):.1f}"]


def table(benchmark: cosda.Benchmark, out: Path, counts: Sequence[int] = COUNTS, seeds: int = SEEDS) -> str:
    """The whole table."""
    shown = {name: [list(outcomes(benchmark, name, count, out, seeds)) for count in counts] for name in METHODS}
    head = ["images"]
    for name, rule in METHODS.items():
        label = f"{name}, {rule}" if rule != "last" else name
        head += [f"{label}: new domain", "worst change", "lost on the source"]
    before = mean(one.before for one in shown["aad"][0])
    lines = [["none", *[f"{before:.1f}", "", ""] * len(METHODS)]]
    for number, count in enumerate(counts):
        largest = count == max(counts)
        lines.append(["all" if largest else str(count), *[cell for name in METHODS for cell in row(shown[name][number])]])
    return markdown([head, *lines])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="where runs are kept")
    parser.add_argument("--into", type=Path, help="a Markdown file with the line <!-- how many -->")
    asked = parser.parse_args()
    made = table(cosda.load_benchmark("digits"), asked.out)
    if asked.into is None:
        print(made)
    else:
        asked.into.write_text(put_into(asked.into.read_text(), {"how many": made}))
