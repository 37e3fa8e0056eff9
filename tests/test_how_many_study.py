"""The study behind docs/guides/how-many-images.md, on made-up images."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tiny import tiny_benchmark, tiny_domain

ROOT = Path(__file__).parents[1]
FEW = {"source.epochs": 1, "network.bottleneck": 8}


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch):
    """The script as a module, with a source of another name."""
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    sys.modules.pop("how_many", None)
    import how_many  # type: ignore[import-not-found]

    monkeypatch.setattr(how_many, "SOURCE", "one")
    yield how_many
    del sys.modules["how_many"]


def test_fewer_images_are_part_of_more_and_the_test_images_stay(study) -> None:
    benchmark = tiny_benchmark()
    few, more, all_ = (study.part(benchmark, "two", count, seed=0) for count in (5, 10, 99))
    assert list(few.domains) == ["one", "two"]
    assert len(few["two"].train) == 5
    assert set(few["two"].train) < set(more["two"].train) < set(benchmark["two"].train)
    assert np.array_equal(all_["two"].train, benchmark["two"].train)
    assert all(np.array_equal(one["two"].test, benchmark["two"].test) for one in (few, more, all_))
    assert set(study.part(benchmark, "two", 10, seed=1)["two"].train) != set(more["two"].train)
    assert few["one"] is benchmark["one"]


def test_the_table_tells_mean_worst_and_loss(study) -> None:
    done = [study.Outcome(50, 60, 1.0), study.Outcome(50, 47, -1.0), study.Outcome(50, 73, 3.0)]
    assert study.cell(done) == r"60.0 \| -3.0 \| 1.0"
    assert study.cell([]) == ""
    kinds = {kind.name: kind for kind in study.KINDS}
    assert kinds["AaD, bank, more epochs"].epochs(200, (200, 1200)) == 6 * kinds["AaD, bank"].epochs(200, (200, 1200))


def test_a_run_that_is_there_is_only_read(study, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    domains = {name: tiny_domain(name, 60, seed, features=True) for seed, name in enumerate(("one", "two"))}
    benchmark = replace(tiny_benchmark(features=True), domains=domains)
    train, chain = study.cosda.train_source, study.cosda.run_chain
    monkeypatch.setattr(study.cosda, "train_source", lambda *a, **k: train(*a, **k, settings=FEW))
    monkeypatch.setattr(study, "EPOCHS", 1)
    monkeypatch.setattr(study, "KINDS", (study.KINDS[0], replace(study.KINDS[1], fewest=40)))
    first = study.table(benchmark, tmp_path, counts=(20, 40), seeds=1)
    head, _, none, few, all_ = first.splitlines()
    assert head == "| images | AaD, bank | AaD, bank, more epochs |"
    assert len(set(none.split(" | ")[1:])) == 2  # the number, and the number with the end of the line
    assert few.startswith("| 20 | ")
    assert few.endswith(" |  |")
    assert all_.startswith("| all, 40 | ")
    runs = []
    monkeypatch.setattr(study.cosda, "run_chain", lambda *a, **k: runs.append(chain(*a, **k)) or runs[-1])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("records.jsonl")}
    assert study.table(benchmark, tmp_path, counts=(20, 40), seeds=1) == first
    assert len(runs) == 3
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("records.jsonl")} == before


def test_the_page_has_the_mark_that_the_study_writes_to() -> None:
    text = (ROOT / "docs" / "guides" / "how-many-images.md").read_text(encoding="utf-8")
    assert "<!-- how many -->\n\n| images | " in text
