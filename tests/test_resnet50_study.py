"""The study on the paper's network: its table says what the records and the paper say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cosda.api import run_chain
from cosda.records.run import Run
from cosda.records.selection import candidates
from cosda.report.model.published import published
from tiny import read, tiny_benchmark

STUDY = Path(__file__).parents[1] / "studies" / "resnet50.py"
SETTINGS = read(("source.epochs=1", "network.bottleneck=8", "epochs=3", "lr=0.5", "lr_end=0.5"))
PAIR = ("one", "two")


def printed(folder: Path, *more: str) -> str:
    program = [sys.executable, str(STUDY), str(folder), *more]
    return subprocess.run(program, check=True, capture_output=True, text=True).stdout


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()]


def shown(matrix: list[list[float]]) -> str:
    gain, drop = matrix[1][1] - matrix[0][1], matrix[0][0] - matrix[1][0]
    return f"{100 * matrix[1][1]:.2f}{f' ({100 * gain:+.2f})' if gain else ''} \\| {100 * drop:.2f}"


def best_epoch(run: Run) -> tuple[int, float]:
    return max((candidate.accuracy, candidate.epoch) for candidate in candidates(run, 1))[::-1]  # type: ignore


@pytest.mark.parametrize("measure", ["source", "target"])
def test_the_table_has_last_and_best_epoch_and_the_paper(measure: str, tmp_path: Path) -> None:
    benchmark, settings = tiny_benchmark(features=True), {**SETTINGS, "adapt.measure": measure}
    out, page = tmp_path / "runs", tmp_path / "page.md"
    aad = run_chain(benchmark, "aad", domains=PAIR, settings=settings, out=out)
    slow = run_chain(benchmark, "aad", domains=PAIR, settings=settings, carry="interpolate=0.5", out=out)
    source = run_chain(benchmark, "source", domains=PAIR, settings=settings, out=out)
    made = rows(printed(out))
    assert made[0] == ["method", "", "one → two"]
    assert made[2:4] == [
        ["aad", "last epoch", shown(aad.matrix())],
        ["", "other statistics", shown(aad.matrix(other=True))],
    ]
    best, accuracy = best_epoch(aad)
    kind, cell = made[4][1:]
    assert kind == "best epoch (oracle)"
    assert cell.startswith(f"{100 * accuracy:.2f} ")
    unknown = measure == "target" and best != 2
    assert cell.endswith("–") == unknown
    # What is handed on by a carry rule is not the model of an epoch.
    assert [row[:2] for row in made[5:7]] == [["aad (carry interpolate 0.5)", "last epoch"], ["", "other statistics"]]
    assert made[5][2] == shown(slow.matrix())
    assert made[7:] == [["source", "last epoch", shown(source.matrix())]]
    page.write_text("Beside:\n\n<!-- resnet50: beside the paper -->\n\n| old |\n|---|\n")
    printed(out, "--into", str(page))
    assert shown(aad.matrix()) in page.read_text()
    assert "old" not in page.read_text()


def test_the_papers_numbers_stand_once_below_a_method(tmp_path: Path) -> None:
    """The runs get the names of a pair that the paper has."""
    pair, out = ("amazon", "dslr"), tmp_path / "runs"
    for variant in ("paper", "authors"):
        run_chain(tiny_benchmark(features=True), "cosda", domains=PAIR, settings=SETTINGS, variant=variant, out=out)
    for file in [*out.rglob("config.json"), *out.rglob("records.jsonl")]:
        text = file.read_text().replace('"one"', '"amazon"').replace('"two"', '"dslr"')
        file.write_text(text.replace('"benchmark": "tiny"', '"benchmark": "office31"'))
    made = rows(printed(out))
    assert made[0] == ["method", "", "amazon → dslr"]
    assert [row[0] for row in made if row[0]] == ["method", "---", "cosda (paper)", "cosda (authors)"]
    paper, source = published("office31", pair, "cosda"), published("office31", pair, "source")
    assert paper.accuracy is not None
    assert paper.drop is not None
    assert source.accuracy is not None
    said = shown([[1.0, source.accuracy], [1.0 - paper.drop, paper.accuracy]])
    assert made[-1] == ["", "the paper", said]
    assert sum(row[1] == "the paper" for row in made) == 1
