"""Run folders made by hand: numbers small enough to check on paper, names that try to break out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cosda.records import write_json

WriteRun = Callable[..., Path]

CHAIN = ["print", "colour", "hand"]
SCRIPT = "<script>alert(1)</script>"
AMPERSAND = 'a&b"c'
IMAGE = "<img src=x onerror=alert(2)>"

# Correct out of 100 pictures, a line for each stage: [print, colour, hand].
SOURCE = {
    0: [[98, 60, 50], [98, 60, 50], [98, 60, 50]],
    1: [[96, 62, 52], [96, 62, 52], [96, 62, 52]],
}
BN = {
    0: [[98, 60, 50], [90, 70, 51], [80, 66, 60]],
    1: [[96, 62, 52], [88, 72, 53], [78, 64, 64]],
}
COSDA = {
    0: [[98, 60, 50], [97, 80, 56], [96, 79, 74]],
    1: [[96, 62, 52], [96, 84, 60], [95, 85, 76]],
    2: [[97, 61, 51], [97, 82, 58]],  # interrupted in its last stage
}
NO_DUAL_SPEED = {
    0: [[98, 60, 50], [85, 78, 54], [62, 70, 72]],
    1: [[96, 62, 52], [83, 80, 56], [66, 68, 74]],
}
HOSTILE = {0: [[90, 40], [70, 65]]}


def write_run(
    folder: Path,
    matrix: list[list[int]],
    *,
    label: str,
    seed: int = 0,
    domains: list[str] = CHAIN,
    finished: bool = True,
    features: int = 0,
    **config: Any,
) -> Path:
    """A run folder as the runner writes it; `features` is how many are stored of each domain."""
    method = label.split()[0]
    folder.mkdir(parents=True)
    write_json(
        folder / "config.json",
        {
            "kind": "adapt",
            "label": label,
            "benchmark": "digits",
            "fingerprint": "3f9a1c",
            "protocol": "inductive",
            "headline": "top1",
            "domains": domains,
            "classes": ["0", "1"],
            "method": method,
            "variant": "paper" if method == "cosda" else None,
            "ablation": None,
            "seed": seed,
            "select": "last",
            "settings": {
                "data": {"root": "/home/somebody/data", "batch_size": 64},
                "adapt": {"lr": 0.002, "epochs": 3},
                "method": {"temperature": 0.07} if method == "cosda" else {},
            },
            "origins": {"adapt.lr": "preset digits", "data.root": "--data"},
            **config,
        },
    )
    write_json(folder / "environment.json", {"cosda": "0.1.0", "python": "3.11.7", "machine": {"cores": 2}})
    records: list[dict[str, Any]] = []
    for stage, line in enumerate(matrix):
        for epoch in range(3 if stage and method != "source" else 0):
            terms = {"consistency": 1.0 / (epoch + stage), "information": -0.2 * epoch}
            records.append({"kind": "loss", "stage": stage, "epoch": epoch, "steps": 4, "terms": terms})
            records.append(_accuracy(stage, epoch, domains[stage], line[stage] - 2 + epoch))
        records += [_accuracy(stage, None, d, c) for d, c in zip(domains, line, strict=True)]
        if features and stage in (0, len(domains) - 1):
            _write_features(folder, stage, len(domains), features, shift=3.0 / (1 + stage))
            records.append({"kind": "embedding", "stage": stage, "file": f"embedding/stage-{stage}.npz"})
    if not finished:
        losses = {"kind": "loss", "stage": len(matrix), "epoch": 0, "steps": 4, "terms": {"consistency": 0.5}}
        records.append(losses)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    half_a_line = "" if finished else '{"kind":"accu'  # a process that was killed
    (folder / "records.jsonl").write_text(lines + half_a_line, encoding="utf-8")
    if finished:
        write_json(folder / "done.json", {"stages": len(matrix)})
    return folder


def _accuracy(stage: int, epoch: int | None, domain: str, correct: int) -> dict[str, Any]:
    counts = {"images": [50, 50], "correct": [min(50, correct), max(0, correct - 50)]}
    return {"kind": "accuracy", "stage": stage, "epoch": epoch, "domain": domain, "split": "test", **counts}


def _write_features(folder: Path, stage: int, domains: int, each: int, shift: float) -> None:
    """Two classes as two clouds; every further domain lies `shift` away from the one before."""
    random = np.random.default_rng(stage)
    domain = np.repeat(np.arange(domains), each)
    label = np.tile([0, 1], domains * each)[: domains * each]
    centres = np.stack([8.0 * label, shift * domain, *np.zeros((4, len(label)))], axis=1)
    (folder / "embedding").mkdir(exist_ok=True)
    np.savez(
        folder / "embedding" / f"stage-{stage}.npz",
        features=(centres + random.normal(size=centres.shape)).astype(np.float16),
        domain=domain,
        label=label,
    )
