"""Fixtures of the report's tests: stored runs, read back, and the page drawn of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_runs import (
    ACCEPTED,
    AMPERSAND,
    BN,
    CHAIN,
    COSDA,
    HOSTILE,
    IMAGE,
    NO_DUAL_SPEED,
    REJECTED,
    SCRIPT,
    SOURCE,
    STOPPED,
    WriteRun,
    write_adaptation,
    write_bank_run,
    write_paper_runs,
    write_run,
)

from cosda.records.run import Run, find_runs
from cosda.records.verdict import FOLDER
from cosda.report import render_report


@pytest.fixture(scope="session")
def runs_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four methods on one chain (one seed interrupted), the oracle's section, and hostile names."""
    runs = tmp_path_factory.mktemp("runs")
    for label, name, seeds in (
        ("source", "source", SOURCE),
        ("bn", "bn", BN),
        ("cosda", "cosda", COSDA),
        ("cosda (no-dual-speed)", "cosda-no-dual-speed", NO_DUAL_SPEED),
    ):
        for seed, matrix in seeds.items():
            folder = runs / f"digits-{name}-s{seed}-00aa{seed}"
            finished = len(matrix) == len(CHAIN)
            write_run(folder, matrix, label=label, seed=seed, finished=finished, features=40 * (seed == 0))
    write_run(runs / "digits-cosda-s0-oracle", COSDA[0], label="cosda", select="oracle")
    write_run(
        runs / "hostile-s0-1",
        HOSTILE[0],
        label=IMAGE,
        benchmark=AMPERSAND,
        domains=[SCRIPT, "%{x}|*b*"],
        headline="per-class",
        settings={"method": {"name": f"</script>{SCRIPT}\u2028<!--"}},
        features=30,
    )
    return runs


@pytest.fixture(scope="session")
def runs(runs_folder: Path) -> list[Run]:
    return find_runs([runs_folder])


@pytest.fixture(scope="session")
def paper_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Runs on benchmarks of which the paper has numbers."""
    return find_runs([write_paper_runs(tmp_path_factory.mktemp("paper"))])


@pytest.fixture(scope="session")
def bank_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """A domain bank with two seeds beside the source model, and one whose target images were routed cross-fitted."""
    runs = tmp_path_factory.mktemp("bank")
    for seed, matrix in SOURCE.items():
        write_run(runs / f"digits-source-s{seed}", matrix, label="source", seed=seed)
        write_bank_run(runs / f"digits-aad-s{seed}-bank", seed)
    write_bank_run(runs / "letters-aad-s0-bank", benchmark="letters", protocol="transductive")
    return find_runs([runs])


@pytest.fixture(scope="session")
def adapted_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Adaptations without labels: accepted, rejected by a check, stopped by the guard, and a damaged verdict."""
    runs = tmp_path_factory.mktemp("adapted")
    for name, verdict in (("accepted", ACCEPTED), ("rejected", REJECTED), ("stopped", STOPPED)):
        write_adaptation(runs / f"own-aad-{name}", verdict)
    (write_adaptation(runs / "own-aad-damaged") / FOLDER / "verdict.json").write_text("{}", encoding="utf-8")
    return find_runs([runs])


@pytest.fixture(scope="session")
def make_run() -> WriteRun:
    return write_run


@pytest.fixture(scope="session")
def page(runs: list[Run]) -> str:
    return render_report(runs, "html")
