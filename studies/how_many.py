"""How many unlabelled images adapting needs: `digits`, from `print` to each other domain, with a part of its images.

    python studies/how_many.py out/studies/how-many                                           # prints the table
    python studies/how_many.py out/studies/how-many --into docs/guides/how-many-images.md     # puts it into the page

AaD with the domain bank and CoSDA, as `cosda run` does them, but with so many training images of the target; always all
test images. AaD also with more epochs, so that it takes as many steps as with all images. A run that is there already
is only read, so a study that was stopped goes on.
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
SEEDS = 3
EPOCHS = 8  # of the benchmark
# Nobody looks at the epochs in between, so nothing is measured there; the models are the same.
SETTINGS = {"adapt.measure": "target", "adapt.validate": 0}


@dataclass(frozen=True)
class Kind:
    """One way to adapt."""

    name: str
    method: str
    carry: str
    fewest: int = 0  # images; with fewer it is not run
    same_steps: bool = False  # more epochs where there are fewer images

    def epochs(self, count: int, counts: Sequence[int]) -> int:
        """For so many images."""
        return EPOCHS * max(counts) // count if self.same_steps else EPOCHS


KINDS = (
    Kind("AaD, bank", "aad", "bank"),
    Kind("AaD, bank, more epochs", "aad", "bank", fewest=200, same_steps=True),
    Kind("CoSDA", "cosda", "last"),
)


@dataclass(frozen=True)
class Outcome:
    """One adaptation in percent: the new domain before and after, and what the source lost."""

    before: float
    after: float
    lost: float


def part(benchmark: cosda.Benchmark, target: str, count: int, seed: int) -> cosda.Benchmark:
    """The source, and so many training images of one target, drawn at random; fewer are part of more."""
    domain = benchmark[target]
    order = np.random.default_rng(seed).permutation(domain.train)
    chosen = replace(domain, train=np.sort(order[:count]))
    return replace(benchmark, domains={SOURCE: benchmark[SOURCE], target: chosen})


def outcomes(
    benchmark: cosda.Benchmark, kind: Kind, count: int, epochs: int, out: Path, seeds: int = SEEDS
) -> Iterator[Outcome]:
    """Of all targets and seeds."""
    machine = cosda.Machine(threads=1)
    for seed in range(seeds):
        model = cosda.train_source(benchmark, SOURCE, seed=seed, out=out, machine=machine).model
        for target in [name for name in benchmark.domains if name != SOURCE]:
            run = cosda.run_chain(
                part(benchmark, target, count, seed),
                kind.method,
                carry=kind.carry,
                epochs=epochs,
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


def cell(done: Sequence[Outcome]) -> str:
    """What the page tells of one way to adapt with so many images."""
    if not done:
        return ""
    worst = min(one.after - one.before for one in done)
    lost = round(mean(one.lost for one in done), 1) + 0.0  # no -0.0
    return f"{mean(one.after for one in done):.1f} \\| {worst:+.1f} \\| {lost:.1f}"


def table(benchmark: cosda.Benchmark, out: Path, counts: Sequence[int] = COUNTS, seeds: int = SEEDS) -> str:
    """The whole table."""
    lines, before = [], 0.0
    for count in counts:
        row = [f"all, {count}" if count == max(counts) else str(count)]
        for kind in KINDS:
            epochs = kind.epochs(count, counts)
            done = list(outcomes(benchmark, kind, count, epochs, out, seeds)) if count >= kind.fewest else []
            before = mean(one.before for one in done) if done else before
            row.append(cell(done))
        lines.append(row)
    return markdown([["images", *(kind.name for kind in KINDS)], ["none", *[f"{before:.1f}"] * len(KINDS)], *lines])


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
