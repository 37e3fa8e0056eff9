"""EdgeMix is NRC on images with edges, and edges are an option of every training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cosda.api import make_plan, run_chain
from cosda.config.request import Request
from cosda.config.schema import EdgeSettings, Optimisation
from cosda.errors import CosdaError
from cosda.methods.edgemix import EdgeMix
from cosda.methods.nrc import NRC
from cosda.models.artifact import load
from cosda.models.network import Network, same_weights
from cosda.records.run import Run
from cosda.run.chain import carried_path
from cosda.run.edges import open_edges
from cosda.run.train import Training
from tiny import CPU, read, tiny_benchmark, tiny_domain, tiny_loader, tiny_network

QUICK = (
    *("epochs=3", "batch_size=8", "source.epochs=1", "source.batch_size=8", "edges.clean_epochs=1"),
    *("network.encoder=small", "network.bottleneck=8", "data.size=16", "data.flip=false"),
)


def trained(method: NRC, edgemix: float, kind: str = "batch_norm", clean: int = 1) -> Network:
    settings = Optimisation(epochs=2, batch_size=8, lr=0.05, lr_end=0.01, edgemix=edgemix)
    edges = open_edges(EdgeSettings(clean_epochs=clean), settings, tiny_domain(features=kind == "features"), CPU)
    work = Training(method, tiny_network(kind), replace(tiny_loader(kind), edges=edges), settings, 0, 1, "target")
    work.run(lambda facts: None)
    return work.student


def test_it_is_nrc_with_edges() -> None:
    assert same_weights(trained(EdgeMix(), 0.9), trained(NRC(), 0.9))
    assert not same_weights(trained(EdgeMix(), 0.9), trained(NRC(), 1.0))


@pytest.mark.parametrize(
    ("edgemix", "kind", "clean"), [(1.0, "batch_norm", 1), (0.9, "features", 1), (0.9, "plain", 2)]
)
def test_without_edges_it_is_nrc_to_the_bit(edgemix: float, kind: str, clean: int) -> None:
    """At share 1, on feature vectors, and where all epochs are clean."""
    assert same_weights(trained(EdgeMix(), edgemix, kind, clean), trained(NRC(), 1.0, kind))


def test_the_row_of_the_study_is_resolved_and_names_its_operator() -> None:
    plan = make_plan(tiny_benchmark(), Request("edgemix"))
    edges = plan.settings["edges"]
    assert (plan.settings["adapt"]["edgemix"], edges["operator"], edges["clean_epochs"]) == (0.9, "sobel", 2)
    assert plan.origins["adapt.edgemix"] == "method edgemix"
    assert plan.settings["source"]["edgemix"] == 1, "the study's source model is the ordinary one"
    assert make_plan(tiny_benchmark(), Request("nrc")).settings["adapt"]["edgemix"] == 1


def run(out: Path, method: str, *changes: str) -> Run:
    return run_chain(tiny_benchmark(), method, settings=read((*QUICK, *changes)), out=out)


def test_any_method_takes_edges_from_the_command_line_to_the_records(tmp_path: Path) -> None:
    bare, mixed, again = (run(tmp_path / name, "cosda", *more) for name, more in RUNS.items())
    assert mixed.config["settings"]["adapt"]["edgemix"] == 0.8
    assert mixed.config["settings"]["edges"]["operator"] == "sobel"
    first, second = ([r["terms"] for r in one.of("loss")] for one in (bare, mixed))
    assert first[0] != second[0]
    assert [r["terms"] for r in again.of("loss")] == second
    start = [load(carried_path(one, 0)).network for one in (bare, mixed)]
    assert same_weights(*start), "the source model had no edges"


RUNS = {"bare": (), "mixed": ("adapt.edgemix=0.8",), "again": ("adapt.edgemix=0.8",)}


def test_source_training_takes_them_too(tmp_path: Path) -> None:
    bare, mixed = run(tmp_path, "source"), run(tmp_path, "source", "source.edgemix=0.5", "edges.clean_epochs=0")
    start = [load(carried_path(one, 0)).network for one in (bare, mixed)]
    assert not same_weights(*start)


def test_a_missing_file_is_news_before_the_source_is_trained(tmp_path: Path) -> None:
    with pytest.raises(CosdaError, match="Download"):
        run(tmp_path, "edgemix", "edges.operator=dexined", f"edges.weights={tmp_path / 'none.pth'}")
    assert not (tmp_path / "sources").exists()
