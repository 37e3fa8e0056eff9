"""MNIST and USPS from a file, scikit-learn's digits from the package: one small .npz that `cosda bench` reads."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from cosda.data import digits

COUNTS = {"train": 2000, "test": 1000}


def main(source: Path, target: Path) -> None:
    """Write the three domains: a random part of MNIST and USPS, and `hand` as the embedded benchmark splits it."""
    given, arrays = np.load(source), {}
    for name in ("mnist", "usps"):
        for split, count in COUNTS.items():
            images, labels = given[f"{name}_{split}_images"], given[f"{name}_{split}_labels"]
            chosen = np.sort(np.random.default_rng(0).permutation(len(labels))[:count])
            arrays[f"{name}_{split}_images"], arrays[f"{name}_{split}_labels"] = images[chosen], labels[chosen]
    hand = digits.load().domains["hand"]
    assert hand.labels is not None
    for split, part in (("train", hand.train), ("test", hand.test)):
        arrays[f"hand_{split}_images"], arrays[f"hand_{split}_labels"] = np.asarray(hand.items[part]), hand.labels[part]
    np.savez(target, **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
