"""What a domain bank costs whose base has no profile: `digits`, AaD, three seeds.

The same source models with the profile of their training images, with what their BatchNorm layers remember, and with
neither. Prints averages, source drops, and how many of the source's images find the base.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import mean

import cosda
from cosda.models.router import Gauge

CHAIN = ("print", "outline", "colour", "hand")


@contextmanager
def forgetful() -> Iterator[None]:
    """Within the block BatchNorm layers remember nothing."""
    remembered = Gauge.remembered
    Gauge.remembered = lambda *arguments: None  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Gauge.remembered = remembered  # type: ignore[method-assign]


def chain(kind: str, seed: int, out: Path) -> cosda.Run:
    """One run with a base of this kind."""
    model = cosda.train_source("digits", CHAIN[0], out=out, seed=seed).model
    if kind != "images":
        model.network.profile = None
    with forgetful() if kind == "nothing" else nullcontext():
        return cosda.run_chain("digits", "aad", domains=CHAIN, model=model, carry="bank", seed=seed, out=out / kind)


def main(out: Path) -> None:
    """All runs."""
    for kind in ("images", "norms", "nothing"):
        runs = [chain(kind, seed, out) for seed in range(3)]
        matrices = [matrix for run in runs if (matrix := run.matrix()) is not None]
        average = mean(mean(matrix[-1]) for matrix in matrices)
        drop = mean(matrix[0][0] - matrix[-1][0] for matrix in matrices)
        found = mean(next(iter(run.routing()[CHAIN[0]].experts.values())) for run in runs)
        print(f"{kind}: average {100 * average:.2f}, source drop {100 * drop:.2f}, at the base {100 * found:.0f} %")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
