"""The scripts of the studies ask for what there is: options, methods, rules and settings."""

from __future__ import annotations

import json
import os
import stat
import statistics
import subprocess
import sys
from itertools import permutations, product
from pathlib import Path

import pytest
import typer.main

from cosda.__main__ import app
from cosda.api import run_chain
from cosda.config.request import Data, Request, parse_changes
from cosda.config.resolve import resolve
from cosda.methods import METHODS
from cosda.records.run import find_runs
from cosda.report import write_report
from tiny import read, tiny_benchmark

STUDIES = Path(__file__).parents[1] / "studies"
SCRIPTS = sorted(path for path in STUDIES.glob("*.sh") if path.name != "common.sh")
RECORDER = """#!/bin/sh
python3 -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "$@" >> "$ASKED"
"""


def commands(script: Path, folder: Path) -> list[list[str]]:
    """What a script would ask of `cosda`, with a program in its place that only writes it down."""
    for name, text in (("cosda", RECORDER), ("python", "#!/bin/sh\n")):
        program = folder / name
        program.write_text(text)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    asked = folder / "asked"
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "ASKED": str(asked),
        "OUT": str(folder / "out"),
    }
    subprocess.run(["sh", str(script)], check=True, env=environment, cwd=folder)
    return [json.loads(line) for line in asked.read_text().splitlines()]


def test_there_are_studies() -> None:
    names = {"ablations", "carry", "bank", "compared", "default", "images", "resnet50"}
    assert {path.stem for path in SCRIPTS} == names


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_command_of_a_study_is_possible(script: Path, tmp_path: Path) -> None:
    benches = 0
    for name, *words in commands(script, tmp_path):
        command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
        asked = command.make_context(name, words, resilient_parsing=name == "report").params
        if name != "bench":
            continue
        benches += 1
        rules = asked["carry"].split(",") if asked["carry"] else [None]
        for method, rule in product(asked["methods"].split(","), rules):
            assert method in METHODS
            # `source` and `bn` have no variants, and a benchmark leaves them as they are.
            variant = asked["variant"] if METHODS.find(method).variants else None
            carry = [f"adapt.carry={rule}"] if rule else []
            request = Request(method, changes=parse_changes([*carry, *(asked["set_"] or [])]), variant=variant)
            plan = resolve(Data("office31", ("a", "b"), ("x",)), request)
            assert plan.method == method
    assert benches


def test_the_tables_come_from_the_report(tmp_path: Path) -> None:
    benchmark, out = tiny_benchmark(features=True), tmp_path / "runs"
    changes = ("epochs=1", "source.epochs=1", "network.bottleneck=8")
    for method, rules, seeds in (
        ("source", ["last"], 1),
        ("aad", ["last", "interpolate=0.5"], 1),
        ("cosda", ["last"], 2),
    ):
        for rule, seed in product(rules, range(seeds)):
            for chain in permutations(("one", "two", "three")):
                variant = None if method == "source" else "paper"
                options = {"settings": read(changes), "carry": rule, "variant": variant, "seed": seed}
                run_chain(benchmark, method, domains=chain, out=out, **options)  # type: ignore[arg-type]
    run_chain(benchmark, "cosda", settings=read((*changes, "method.restart=true")), variant="paper", out=out)
    write_report(find_runs([out]), tmp_path / "report.csv", "csv")
    page = tmp_path / "page.md"
    page.write_text("Rules:\n\n<!-- report: the carry rule -->\n\n| old |\n|---|\n\nAnd so on.\n")
    said = printed_tables(tmp_path / "report.csv")
    carry, which, ablations, compared, _ = said.split("### ")[1:]
    assert printed_tables(tmp_path / "report.csv", "--into", str(page)) == ""
    assert printed_tables(tmp_path / "report.csv", "--only", "ablations") == f"### {ablations.rstrip()}\n"
    rest = carry.removeprefix("report: the carry rule\n\n").rstrip("\n")
    assert page.read_text() == f"Rules:\n\n<!-- report: the carry rule -->\n\n{rest}\n\nAnd so on.\n"
    runs = [run for run in find_runs([out]) if run.label == "aad (carry interpolate 0.5)"]
    average = 100 * sum(run.summary()["average"] for run in runs) / len(runs)
    [row] = [line.split(" | ") for line in carry.splitlines() if line.startswith("| aad |")]
    assert f"{average:.1f}" in row[3]
    assert row[2].strip() == ""  # a share that was not run
    assert {line.split(" | ")[0] for line in which.splitlines()[4:6]} == {"| `cosda (paper)`", "| `source`"}
    by_seed: dict[int, list[float]] = {0: [], 1: []}
    for run in find_runs([out]):
        if run.label == "cosda (paper)" and not run.config["settings"]["method"]["restart"]:
            by_seed[run.seed].append(100 * run.summary()["average"])
    means = [statistics.mean(values) for values in by_seed.values()]
    [row] = [line.split(" | ") for line in which.splitlines() if line.startswith("| `cosda (paper)` |")]
    assert row[1:3] == ["2", f"{statistics.mean(means):.2f} ± {statistics.stdev(means):.2f}"]
    matrices = [matrix for run in find_runs([out]) if run.label == "aad" and (matrix := run.matrix())]
    pair, drop = (
        100 * sum(values) / len(matrices)
        for values in ([m[1][1] for m in matrices], [m[0][0] - m[1][0] for m in matrices])
    )
    [row] = [line for line in compared.splitlines() if line.startswith("| `aad` |")]
    assert row.endswith(f"| {pair:.2f} | {drop:.2f} |")  # the first stages of the chains
    assert "restart" not in which  # only one of its six chains was run
    assert "aad" not in ablations
    assert "| `aad` |" in compared


def printed_tables(report: Path, *more: str) -> str:
    program = [sys.executable, str(STUDIES / "tables.py"), str(report), *more]
    return subprocess.run(program, check=True, capture_output=True, text=True).stdout


def cells(line: str) -> list[str]:
    return line.removeprefix("| ").removesuffix(" |").split(" | ")


def test_the_tables_of_one_chain_and_of_single_targets(tmp_path: Path) -> None:
    benchmark, out = tiny_benchmark(features=True), tmp_path / "runs"
    changes = ("epochs=1", "source.epochs=1", "network.bottleneck=8")
    run_chain(benchmark, "source", settings=read(changes), out=out)
    chain = run_chain(benchmark, "aad", settings=read(changes), out=out)
    pair = run_chain(benchmark, "aad", domains=("three", "one"), settings=read(changes), out=out)
    write_report(find_runs([out]), tmp_path / "few.csv", "csv")
    said = printed_tables(tmp_path / "few.csv")
    made = {
        name: list(map(cells, lines)) for name, _, *lines in (p.rstrip().splitlines() for p in said.split("### ")[1:])
    }
    assert list(made) == ["few: the chain", "few: after the chain", "few: single targets"]
    heads = {name: head for name, (head, *_) in made.items()}
    rows = {name: {label: line for label, *line in lines[2:]} for name, lines in made.items()}
    assert heads["few: the chain"][:3] == ["method", "seeds", "Average"]
    assert rows["few: the chain"]["aad"][1].strip("*") == f"{100 * chain.summary()['average']:.2f}"
    matrix = chain.matrix()
    assert [cell.strip("*") for cell in rows["few: after the chain"]["aad"][1:]] == [
        f"{100 * v:.2f}" for v in matrix[-1]
    ]
    assert heads["few: single targets"] == ["method", "one → two", "three → one"]
    first, alone = (f"{100 * m[1][1]:.1f} \\| {100 * (m[0][0] - m[1][0]):.1f}" for m in (matrix, pair.matrix()))
    assert [cell.replace("*", "") for cell in rows["few: single targets"]["aad"]] == [first, alone]
    assert rows["few: single targets"]["source"][1] == ""  # was not run
    assert "**" in said


def test_single_targets_need_no_chain(tmp_path: Path) -> None:
    benchmark, out = tiny_benchmark(features=True), tmp_path / "runs"
    changes = ("epochs=1", "source.epochs=1", "network.bottleneck=8")
    run_chain(benchmark, "aad", domains=("three", "one"), settings=read(changes), out=out)
    write_report(find_runs([out]), tmp_path / "pairs.csv", "csv")
    said = printed_tables(tmp_path / "pairs.csv")
    assert said.startswith("### pairs: single targets\n\n| method | three → one |\n")
    assert said.count("###") == 1
