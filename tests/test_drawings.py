"""The figures of the documents: drawn from runs and from the page beside them, and the stored ones are those."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tools import figures, walk

from cosda.api import run_chain
from cosda.records.run import find_runs
from cosda.report.model.groups import group_runs
from tiny import read, tiny_benchmark


def texts(svg: str) -> list[str]:
    """All texts of a figure; an error where it is no XML."""
    return sorted(
        "".join(one.itertext()) for one in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    )


def test_the_stored_figures_are_those_of_the_stored_numbers() -> None:
    table = (figures.FOLDER / "demo.csv").read_text(encoding="utf-8")
    made = figures.draw(table)
    assert {figures.called(name) for name in figures.read(table)[1]} <= set(texts(made["trade-off"]))
    for name, svg in made.items():
        stored = (figures.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
        assert texts(stored) == texts(svg)  # another version of matplotlib may set other coordinates
        assert "prefers-color-scheme: dark" in stored
        assert "var(--ink)" in stored
        assert not re.search(f"{figures.INK}|{figures.FAINT}", stored)
        assert len(stored) < 40_000


def test_figures_are_drawn_from_runs(tmp_path: Path) -> None:
    benchmark, out = tiny_benchmark(features=True), tmp_path / "runs"
    settings = read(("epochs=1", "source.epochs=1", "network.bottleneck=8"))
    done = {}
    for method, carry in (("source", "last"), ("aad", "last"), ("cosda", "last"), ("aad", "bank")):
        for seed in range(2):
            run = run_chain(benchmark, method, settings=settings, carry=carry, seed=seed, out=out)
            done.setdefault(run.label, []).append(run.matrix())
    [section] = group_runs(find_runs([out])).sections
    table = figures.table_of(section)
    domains, found = figures.read(table)
    assert domains == list(section.domains)
    assert found.keys() == done.keys()
    for name, matrices in done.items():
        for matrix, stored in zip(matrices, found[name], strict=True):
            assert [list(map(float, (f"{v:.6f}" for v in row))) for row in matrix] == stored
    best = max(("aad", "cosda"), key=lambda name: figures.average(found[name]))
    assert figures.best_of_the_paper(found) == best
    shown = texts(figures.draw(table)["stages"])
    for name in (best, "aad (carry bank)"):
        assert f"{figures.called(name)}: {100 * figures.average(found[name]):.1f} %" in shown
    assert "source drop, points (left is better)" in texts(figures.draw(table)["trade-off"])


def test_names_at_the_ends_of_lines_stay_apart() -> None:
    assert figures.apart([1.0, 2.0, 30.0], 5) == [-1.0, 4.0, 30.0]
    moved = figures.apart([1.0, 1.0, 1.0, 40.0], 5)
    assert all(above - below > 4.9 for below, above in pairwise(moved))


def test_the_walk_of_a_run_is_that_of_its_table() -> None:
    page = walk.PAGE.read_text(encoding="utf-8")
    made = walk.draw(page)
    assert walk.PICTURE.read_text(encoding="utf-8") == made
    assert {"Request", "Plan", "train", "hand on", "records.jsonl", "run/stage.py"} <= set(texts(made))
    with pytest.raises(ValueError, match=r"no place, or one too many, for.*all settings"):
        walk.draw(page.replace("| all settings |", "| every setting |"))
    with pytest.raises(ValueError, match="must say what a stage does"):
        walk.draw(page.replace("`Stage`: train, choose, hand on, measure", "`Stage`"))
