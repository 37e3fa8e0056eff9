"""Runs from end to end on made-up images: what is recorded, what is never done twice, what labels cannot change."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cosda.api import evaluate, make_plan, run_chain
from cosda.config.catalogue import cost_rows
from cosda.config.request import Request
from cosda.data.domain import Benchmark
from cosda.data.loader import open_loader
from cosda.errors import CosdaError
from cosda.models.artifact import load
from cosda.models.network import same_weights, to_device
from cosda.models.statistics import statistics
from cosda.records.run import Run, find_runs
from cosda.run.chain import carried_path
from cosda.run.evaluate import embed, predicted_classes
from cosda.run.machine import Machine
from cosda.watch import Watcher
from tiny import read, tiny_benchmark

QUICK = (
    *("epochs=2", "batch_size=8", "source.epochs=2", "source.batch_size=8"),
    *("network.encoder=small", "network.bottleneck=8", "data.size=16", "data.flip=false"),
)


def quick(
    benchmark: Benchmark, out: Path, method: str = "cosda", changes: tuple[str, ...] = (), **options: object
) -> Run:
    return run_chain(benchmark, method, settings=read((*QUICK, *changes)), out=out, **options)  # type: ignore[arg-type]


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by one whenever a chain measures a model on a domain."""
    looks: list[int] = []

    def counted(*given: Any) -> Any:
        looks.append(1)
        return predicted_classes(*given)

    monkeypatch.setattr("cosda.run.measure.predicted_classes", counted)
    return looks


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return quick(tiny_benchmark(), tmp_path_factory.mktemp("runs"))


def test_every_stage_is_measured_on_every_domain(finished: Run) -> None:
    matrix = finished.matrix()
    assert matrix is not None
    assert len(matrix) == 3
    cells = {(r["stage"], r["domain"]) for r in finished.of("accuracy", epoch=None)}
    assert cells == {(s, d) for s in range(3) for d in ("one", "two", "three")}


def test_losses_rates_and_target_accuracy_of_every_epoch_are_recorded(finished: Run) -> None:
    losses = list(finished.of("loss"))
    assert [(r["stage"], r["epoch"]) for r in losses] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert all(set(r["terms"]) == {"consistency", "information"} for r in losses)
    assert all(set(r["rates"]) == {"encoder", "bottleneck", "classifier"} for r in losses)
    assert losses[1]["rates"]["encoder"] < losses[0]["rates"]["encoder"]
    assert losses[2]["rates"] == losses[0]["rates"], "schedules start anew with each target"
    curve = [(r["stage"], r["epoch"], r["domain"]) for r in finished.of("accuracy") if r["epoch"] is not None]
    assert curve == [(s, e, d) for s, target in ((1, "two"), (2, "three")) for e in (0, 1) for d in (target, "one")]


@pytest.mark.parametrize(
    ("method", "select", "changes"),
    [
        ("cosda", "last", ()),
        ("cosda", "last", ("measure=target",)),
        ("nrc", "agreement", ()),  # prefers an early epoch
        ("nrc", "last", ("carry=interpolate",)),
        ("nrc", "last", ("adapt.statistics=merged",)),
        ("gsfda", "last", ()),
    ],
)
def test_what_is_recorded_of_a_model_is_what_it_gives(
    method: str, select: str, changes: tuple[str, ...], tmp_path: Path
) -> None:
    """Some of it was measured after an epoch, and is not measured again when the stage closes."""
    benchmark = tiny_benchmark()
    fast = ("adapt.lr=0.3", "adapt.lr_end=0.3", "epochs=3")  # so that models differ in what they give
    assert_recorded_is_given(quick(benchmark, tmp_path, method, (*changes, *fast), select=select), benchmark)


def assert_recorded_is_given(run: Run, benchmark: Benchmark) -> None:
    for record in run.of("accuracy", epoch=None):
        name = record["domain"]
        found = evaluate(load(carried_path(run, record["stage"])), benchmark[name], domain=name)
        assert found.correct == record["correct"], (record["stage"], name)


@pytest.mark.parametrize(("select", "changes"), [("agreement", ()), ("last", ("carry=interpolate=0.999",))])
def test_what_is_recorded_of_a_model_that_is_not_the_last_epochs(
    select: str, changes: tuple[str, ...], drifting: Any, tmp_path: Path
) -> None:
    """After the last epoch every image is of the first class; of what is handed on that is not so."""
    run = drifting(tmp_path, (0.0, 1000.0), *changes, select=select, domains=("one", "two", "three"))
    assert_recorded_is_given(run, tiny_benchmark(features=True))
    for domain in ("one", "two"):
        last = next(run.of("accuracy", stage=1, domain=domain, epoch=1))
        carried = next(run.of("accuracy", stage=1, domain=domain, epoch=None))
        assert last["correct"] == [last["images"][0], 0, 0]
        assert sum(carried["correct"]) > sum(last["correct"])


def test_a_model_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = count_looks(monkeypatch)
    for carry, more in (("last", 0), ("interpolate", 2)):
        looks.clear()
        quick(tiny_benchmark(), tmp_path, changes=(f"carry={carry}",), domains=["one", "two"])
        # Before; source and target after each epoch; at the end what the mean of two models gives; other statistics.
        assert len(looks) == 2 + 2 * 2 + more + 2


def test_the_last_epochs_model_is_chosen(finished: Run) -> None:
    assert [r["epoch"] for r in finished.of("chosen")] == [1, 1]
    assert finished.done == {"select": "last", "stages": 2}


def test_models_are_saved_with_their_lineage(finished: Run) -> None:
    model = load(carried_path(finished))
    assert [(step["step"], step["domain"]) for step in model.lineage] == [
        ("source", "one"), ("adapt", "two"), ("adapt", "three"),
    ]  # fmt: skip
    assert model.classes == ("a", "b", "c")
    assert model.lineage[1]["settings"]["temperature"] == 0.07
    assert not (finished.path / "checkpoint").exists()


def test_a_finished_run_is_not_run_again(finished: Run) -> None:
    before = {p: p.stat().st_mtime_ns for p in finished.path.rglob("*") if p.is_file()}
    notes: list[str] = []

    class Listener(Watcher):
        def note(self, text: str) -> None:
            notes.append(text)

        def begin(self, task: str, steps: int, unit: str = "steps") -> None:
            raise AssertionError(f"{task} was begun")

    again = quick(tiny_benchmark(), finished.path.parent, watcher=Listener())
    assert again.path == finished.path
    assert {p: p.stat().st_mtime_ns for p in finished.path.rglob("*") if p.is_file()} == before
    assert "finished" in notes[0]


def test_the_source_model_is_trained_once_and_shared(finished: Run, tmp_path: Path) -> None:
    out = finished.path.parent
    quick(tiny_benchmark(), out, "source")
    quick(tiny_benchmark(), out, "bn")
    assert len([p for p in (out / "sources").iterdir() if p.is_dir()]) == 1
    assert {run.label for run in find_runs([out])} == {"cosda", "source", "bn"}
    for run in find_runs([out]):
        assert same_weights(load(run.path / "models/stage-0").network, load(carried_path(finished, 0)).network)


def test_source_changes_nothing_and_bn_changes_statistics_alone(finished: Run) -> None:
    out = finished.path.parent
    run = quick(tiny_benchmark(), out, "source")
    assert same_weights(load(carried_path(run, 0)).network, load(carried_path(run)).network)
    run = quick(tiny_benchmark(), out, "bn")
    first, last = load(carried_path(run, 0)).network, load(carried_path(run)).network
    assert not same_weights(first, last)
    for (name, a), (_, b) in zip(first.named_parameters(), last.named_parameters(), strict=True):
        assert bool((a == b).all()), name


@pytest.mark.parametrize("labels", ["shuffled", "removed"])
def test_adaptation_does_not_see_the_targets_labels(finished: Run, tmp_path: Path, labels: str) -> None:
    """The same bits of weights and losses with the targets' labels shuffled or gone."""
    honest = tiny_benchmark()
    changed = {}
    for name, domain in honest.domains.items():
        if name != "one":
            domain = domain.with_labels_shuffled(7) if labels == "shuffled" else domain.without_labels()
        changed[name] = domain
    assert labels == "removed" or not np.array_equal(changed["two"].labels, honest["two"].labels)
    run = quick(replace(honest, domains=changed), tmp_path)
    assert run.path.name != finished.path.name, "other labels are other data"
    for stage in range(3):
        assert same_weights(load(carried_path(run, stage)).network, load(carried_path(finished, stage)).network)
    assert list(run.of("loss")) == list(finished.of("loss"))
    measured = {r["domain"] for r in run.of("accuracy")}
    assert measured == ({"one", "two", "three"} if labels == "shuffled" else {"one"})


def test_any_order_and_a_single_target(tmp_path: Path) -> None:
    run = quick(tiny_benchmark(), tmp_path, domains=["three", "one"])
    assert run.domains == ["three", "one"]
    assert len(run.matrix() or ()) == 2


def test_settings_of_one_stage(tmp_path: Path) -> None:
    run = quick(tiny_benchmark(), tmp_path, changes=("stage.three.epochs=1", "stage.three.consistency=0"))
    terms = [(r["stage"], r["epoch"], r["terms"]["consistency"] == 0) for r in run.of("loss")]
    assert terms == [(1, 0, False), (1, 1, False), (2, 0, True)]


def test_ablation_and_seed_and_settings_name_other_runs(finished: Run) -> None:
    def name(**options: object) -> str:
        benchmark = tiny_benchmark()
        changes = (*QUICK, *options.pop("changes", ()))  # type: ignore[misc]
        return make_plan(benchmark, Request.of("cosda", settings=read(changes), **options)).name  # type: ignore[arg-type]

    assert name() == finished.path.name
    names = {name(), name(seed=1), name(ablation="no-mi"), name(variant="authors"), name(changes=("temperature=1",))}
    assert len(names) == 5


def test_feature_vectors(tmp_path: Path) -> None:
    changes = ("epochs=2", "source.epochs=3", "network.bottleneck=8")
    run = run_chain(tiny_benchmark(features=True), "cosda", settings=read(changes), out=tmp_path)
    assert run.matrix() is not None
    assert run.config["settings"]["network"]["encoder"] == "identity"


def test_a_frozen_encoder_trains_the_head_alone_and_saves_the_whole(finished: Run, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    changes = ("network.freeze_encoder=true",)
    run = quick(tiny_benchmark(), tmp_path, changes=changes, machine=Machine(cache=cache))
    assert len(list((cache / "features").glob("*/*.npy"))) == 3
    first, last = load(carried_path(run, 0)).network, load(carried_path(run)).network
    assert same_weights(first.encoder, last.encoder)
    assert not same_weights(first.classifier, last.classifier)
    assert set(next(run.of("loss"))["rates"]) == {"bottleneck", "classifier"}


def test_embeddings_of_first_and_last_stage(finished: Run) -> None:
    files = [r["file"] for r in finished.of("embedding")]
    assert files == ["embedding/stage-0.npz", "embedding/stage-2.npz"]
    with np.load(finished.path / files[0]) as stored:
        assert set(stored["domain"].tolist()) == {0, 1, 2}
        assert len(stored["features"]) == len(stored["label"])


@pytest.mark.parametrize("stage", [0, 2])
def test_an_embedding_is_of_the_model_that_its_stage_handed_on(finished: Run, stage: int) -> None:
    model = load(carried_path(finished, stage))
    network = to_device(model.network, torch.device("cpu"))
    loaders = [
        (number, open_loader(domain, "test", model.preprocessing, torch.device("cpu"), 64), domain.labels)
        for number, domain in enumerate(tiny_benchmark().domains.values())
    ]
    with np.load(finished.path / f"embedding/stage-{stage}.npz") as stored:
        wanted = embed(network, loaders, finished.config["seed"])["features"]
        assert np.allclose(np.abs(stored["features"]), np.abs(wanted), atol=1e-2)  # axes may point either way


def test_both_kinds_of_statistics_are_measured(finished: Run) -> None:
    """CoSDA hands on merged statistics; what its weights give with the target's own stands beside it."""
    others = list(finished.of("alternative"))
    assert {(r["stage"], r["domain"], r["statistics"]) for r in others} == {
        (stage, domain, "own") for stage in (1, 2) for domain in ("one", "two", "three")
    }


@pytest.mark.parametrize("kind", ["own", "merged"])
def test_the_statistics_of_the_carried_model_are_a_setting(kind: str, tmp_path: Path) -> None:
    """`bn` replaces statistics; merged ones move from the incoming ones by (1 - m) of the way, a quarter of it here."""
    changes = (f"adapt.statistics={kind}", "adapt.merge_momentum=0.75")
    run = quick(tiny_benchmark(), tmp_path, "bn", changes=changes, domains=["one", "two"])
    native = quick(tiny_benchmark(), tmp_path, "bn", domains=["one", "two"])
    source, chosen, own = (
        statistics(load(path).network) for path in (carried_path(run, 0), carried_path(run), carried_path(native))
    )
    for before, after, target in zip(source, chosen, own, strict=True):
        expected = target if kind == "own" else 0.75 * before + 0.25 * target
        torch.testing.assert_close(after, expected)
    assert {r["statistics"] for r in run.of("alternative")} == {"merged" if kind == "own" else "own"}


def test_forward_passes_are_counted(finished: Run) -> None:
    assert {r["passes"] for r in finished.of("loss")} == {2.0}, "one of the teacher, one of the student"
    rows = cost_rows(find_runs([finished.path]))
    assert rows[0]["method"] == "cosda"
    assert rows[0]["passes per step"] == 2.0
    assert rows[0]["seconds per epoch"] > 0


def test_config_holds_all_that_decides_the_numbers(finished: Run) -> None:
    config = json.loads((finished.path / "config.json").read_text())
    assert config["settings"]["method"]["temperature"] == 0.07
    assert config["origins"]["adapt.epochs"] == "settings: epochs=2"
    assert config["select"] == "last"
    assert config["label"] == "cosda"


def test_impossible_chains(tmp_path: Path) -> None:
    with pytest.raises(CosdaError, match="Did you mean 'three'"):
        quick(tiny_benchmark(), tmp_path, domains=["one", "thre"])
    with pytest.raises(CosdaError, match="at least one target"):
        quick(tiny_benchmark(), tmp_path, domains=["one"])
    with pytest.raises(CosdaError, match="named twice"):
        quick(tiny_benchmark(), tmp_path, domains=["one", "two", "one"])
    assert not any(tmp_path.iterdir())


def test_a_source_without_labels(tmp_path: Path) -> None:
    benchmark = tiny_benchmark()
    domains = {**benchmark.domains, "one": benchmark["one"].without_labels()}
    with pytest.raises(CosdaError, match="has no labels"):
        quick(replace(benchmark, domains=domains), tmp_path)


def test_a_loss_that_is_not_finite_stops_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(CosdaError, match=r"'(consistency|information)' became"):
        quick(tiny_benchmark(), tmp_path, changes=("lr=1e30", "lr_end=1e30"))


def test_images_that_are_judged_and_measured_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = tiny_benchmark()
    domains = {name: replace(d, train=np.arange(len(d)), test=np.arange(len(d))) for name, d in tiny.domains.items()}
    benchmark, looks = replace(tiny, domains=domains, protocol="transductive"), count_looks(monkeypatch)
    accuracies, passes = [], []
    for validate in (1000, 0):
        looks.clear()
        changes = ("measure=target", f"adapt.validate={validate}")
        run = quick(benchmark, tmp_path / str(validate), changes=changes, domains=["one", "two"])
        accuracies.append(list(run.of("accuracy")))
        passes.append(len(looks))
    assert accuracies[0] == accuracies[1]
    assert passes[1] - passes[0] == 2, "one for each epoch"
