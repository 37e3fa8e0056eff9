"""A chain of many domains: what a stage takes does not grow faster than the number of domains before it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from cases import CASES
from events import SMALL, Events

from tiny import tiny_domain

DOMAINS = 21 if CASES else 7  # the source and the targets


def bends(values: Sequence[float]) -> float:
    """How much more the second half of a curve rises than the first: 1 for a line, 3 for a square."""
    middle = (len(values) - 1) // 2
    first, second = values[middle] - values[0], values[2 * middle] - values[middle]
    return second / first


def write_domains(path: Path, count: int) -> str:
    """Domains that lie apart."""
    arrays = {}
    for number in range(count):
        domain = tiny_domain(f"d{number:02}", count=60, seed=number, features=True)
        assert domain.labels is not None
        for split, positions in (("train", domain.train), ("test", domain.test)):
            arrays[f"{domain.name}_{split}_features"] = domain.items[positions]  # type: ignore[index]
            arrays[f"{domain.name}_{split}_labels"] = domain.labels[positions]
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture(scope="module")
def folder(events: Events, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("soak")
    words = (
        "run",
        write_domains(root / "many.npz", DOMAINS),
        "--method",
        "aad",
        "--carry",
        "bank",
        "--out",
        root / "o",
    )
    events.run(root, *words, "--set", "source.epochs=1", *SMALL).check()
    (done,) = (root / "o").glob("many-*/done.json")
    return done.parent


def stages(folder: Path) -> list[Path]:
    """The models of all stages after the source."""
    return [folder / "models" / f"stage-{number}" for number in range(1, DOMAINS)]


def test_the_lineage_of_a_model_grows_by_one_step_a_stage(folder: Path) -> None:
    sizes = []
    for number, stage in enumerate(stages(folder), start=1):
        lineage = json.loads((stage / "model.json").read_text())["lineage"]
        assert [step["domain"] for step in lineage] == [f"d{known:02}" for known in range(number + 1)]
        sizes.append(len(json.dumps(lineage)))
    print("lineage, bytes:", sizes)
    assert bends(sizes) == pytest.approx(1, abs=0.1)


def test_a_model_grows_by_one_expert_a_stage_and_the_disk_holds_each_once(folder: Path) -> None:
    sizes = [sum(file.stat().st_size for file in stage.iterdir()) for stage in stages(folder)]
    print("model folder, bytes:", sizes)
    assert bends(sizes) == pytest.approx(1, abs=0.1)
    experts = [file.stat() for stage in stages(folder) for file in stage.glob("expert-*")]
    assert len({stat.st_ino for stat in experts}) == len(stages(folder))


@pytest.mark.skipif(not CASES, reason="so few stages take too little time to be compared; make faults does it")
def test_time_and_memory_of_a_stage_grow_at_most_with_the_number_of_domains(folder: Path) -> None:
    ends = [(stage / "model.json").stat().st_mtime for stage in [folder / "models" / "stage-0", *stages(folder)]]
    seconds = [after - before for before, after in pairwise(ends)]
    third = len(seconds) // 3
    early, late = median(seconds[:third]), median(seconds[-third:])
    print(f"seconds of a stage: {early:.2f} at first, {late:.2f} at last")
    # From the middle of the first third to that of the last a line rises at most fivefold, a square twentyfold.
    assert late < 8 * early
    timing = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
    peaks = [facts["peak_bytes"] for facts in timing if "peak_bytes" in facts]
    print(f"memory: {peaks[0] / 2**20:.0f} MiB at first, {peaks[-1] / 2**20:.0f} MiB at last")
    assert peaks[-1] - peaks[0] < DOMAINS * 2**20
