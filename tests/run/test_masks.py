"""Models with one mask per domain, from end to end: trained, measured, stored, resumed, and asked for by name."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cosda.__main__ import main
from cosda.api import adapt, evaluate, make_plan, predict, run_chain
from cosda.config.request import Request
from cosda.data.loader import open_loader
from cosda.errors import CosdaError
from cosda.models.architecture import Architecture
from cosda.models.artifact import load
from cosda.models.masks import MaskedNetwork
from cosda.models.network import same_weights
from cosda.records.run import Run
from cosda.run.chain import carried_path
from cosda.run.evaluate import measure
from cosda.run.source import source_config
from cosda.run.train import Training
from cosda.watch import Watcher
from tiny import CPU, read, tiny_benchmark, tiny_domain

NAMES = ("one", "two", "three")
QUICK = (
    *("epochs=2", "batch_size=8", "source.epochs=2", "source.batch_size=8"),
    *("network.encoder=small", "network.bottleneck=8", "data.size=16", "data.flip=false"),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_chain(tiny_benchmark(), "gsfda", settings=read(QUICK), out=tmp_path_factory.mktemp("runs"))


class Notes(Watcher):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


def test_every_cell_is_measured_with_the_mask_of_its_domain(finished: Run) -> None:
    matrix = finished.matrix()
    assert matrix is not None
    assert np.asarray(matrix).shape == (3, 3)
    for stage in range(3):
        model = load(carried_path(finished, stage))
        assert isinstance(model.network, MaskedNetwork)
        for domain in tiny_benchmark():
            assert domain.labels is not None
            loader = open_loader(domain, "test", model.preprocessing, CPU, 64)
            network = model.network.for_domain(domain.name)
            images, correct = measure(network, loader, domain.labels[domain.test], 3)
            record = next(finished.of("accuracy", stage=stage, epoch=None, domain=domain.name))
            assert (record["images"], record["correct"]) == (images, correct)


def test_protected_entries_are_the_same_along_the_whole_chain(finished: Run) -> None:
    """What the source's mask lets through is what it was, after two stages of adaptation."""
    first, last = (load(carried_path(finished, stage)).network for stage in (0, 2))
    assert isinstance(first, MaskedNetwork)
    closed = (first.masks()[0] > 0.999).detach()
    assert closed.any()
    rows = first.bottleneck[0].weight, last.bottleneck[0].weight  # type: ignore[index]
    assert torch.equal(rows[0][closed], rows[1][closed])
    assert not same_weights(first.encoder, last.encoder)


def test_the_model_folder_holds_masks_and_names(finished: Run, tmp_path: Path) -> None:
    model = load(carried_path(finished))
    assert model.network.domains == model.architecture.domains == NAMES
    again = load(model.save(tmp_path / "again"))
    assert same_weights(again.network, model.network)
    assert again.architecture == model.architecture
    assert (tmp_path / "again" / "head.safetensors").read_bytes() == (
        carried_path(finished) / "head.safetensors"
    ).read_bytes()


def test_models_without_masks_are_described_as_before() -> None:
    plain = Architecture("small", 8, 3)
    assert "domains" not in plain.as_json()
    assert Architecture.from_json(plain.as_json()) == plain


def test_its_source_model_is_its_own_and_that_of_others_is_shared(finished: Run) -> None:
    def config(method: str, *changes: str, domains: list[str] | None = None) -> object:
        request = Request.of(method, domains, settings=read((*QUICK, *changes)))
        return source_config(make_plan(tiny_benchmark(), request))

    assert config("cosda") == config("source") == config("cosda", domains=["one", "two"])
    assert set(config("cosda")) == {
        "kind",
        "benchmark",
        "fingerprint",
        "domain",
        "classes",
        "headline",
        "seed",
        "settings",
    }  # type: ignore[call-overload]
    mine = [
        config("gsfda"),
        config("gsfda", "sparsity=0.1"),
        config("gsfda", "scale=50"),
        config("gsfda", domains=["one", "two"]),
    ]
    assert len({json.dumps(one) for one in (*mine, config("cosda"))}) == 5
    assert config("gsfda", "neighbours=3") == config("gsfda")
    sources = list((finished.path.parent / "sources").glob("*/records.jsonl"))
    terms = [json.loads(line) for line in sources[0].read_text().splitlines()]
    assert set(next(r for r in terms if r["kind"] == "loss")["terms"]) == {"cross_entropy", "sparsity"}


def test_the_scale_is_stored(tmp_path: Path) -> None:
    run = run_chain(tiny_benchmark(), "gsfda", settings=read((*QUICK, "scale=5", "epochs=1")), out=tmp_path)
    network = load(carried_path(run)).network
    assert isinstance(network, MaskedNetwork)
    assert float(network.masks.scale) == 5


def test_feature_vectors_and_a_frozen_encoder(tmp_path: Path) -> None:
    changes = ("epochs=1", "source.epochs=1", "network.bottleneck=8")
    run = run_chain(tiny_benchmark(features=True), "gsfda", settings=read(changes), out=tmp_path / "vectors")
    assert run.matrix() is not None
    changes = (*QUICK, "network.freeze_encoder=true")
    run = run_chain(tiny_benchmark(), "gsfda", settings=read(changes), out=tmp_path / "frozen")
    first, last = load(carried_path(run, 0)).network, load(carried_path(run)).network
    assert same_weights(first.encoder, last.encoder)
    assert last.domains == NAMES


def test_an_interrupted_run_ends_with_the_same_bits(
    finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, epochs = Training._train_epoch, 0

    def stopping(self: Training) -> object:
        nonlocal epochs
        epochs += 1
        if epochs in (2, 4, 6):  # in source training, in the first stage, in the second
            raise KeyboardInterrupt
        return whole(self)

    monkeypatch.setattr(Training, "_train_epoch", stopping)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            run_chain(tiny_benchmark(), "gsfda", settings=read(QUICK), out=tmp_path)
    run = run_chain(tiny_benchmark(), "gsfda", settings=read(QUICK), out=tmp_path)
    assert epochs == 9
    assert (run.path / "records.jsonl").read_bytes() == (finished.path / "records.jsonl").read_bytes()
    for stage in range(3):
        assert same_weights(load(carried_path(run, stage)).network, load(carried_path(finished, stage)).network)


# --- Asked for by name ------------------------------------------------------------------------------------------------


def test_evaluate_and_predict_need_the_domains_name(finished: Run) -> None:
    path, data = carried_path(finished), tiny_benchmark()["two"]
    for call in (evaluate, predict, adapt):
        with pytest.raises(CosdaError, match=r"which domain .* --domain NAME .* Known: one, two, three"):
            call(path, data, **({"method": "gsfda"} if call is adapt else {}))  # type: ignore[operator]
    with pytest.raises(CosdaError, match=r"no mask for a domain 'tree'\. Did you mean 'three'"):
        predict(path, data, domain="tree")
    result = evaluate(path, data, domain="two")
    assert result.correct == next(finished.of("accuracy", stage=2, epoch=None, domain="two"))["correct"]
    asked = [[p.probability for p in predict(path, data, domain=name)] for name in ("one", "two")]
    assert asked[0] != asked[1]


def test_a_model_without_masks_takes_any_name(tmp_path: Path) -> None:
    run = run_chain(tiny_benchmark(), "source", settings=read(QUICK), out=tmp_path)
    data = tiny_benchmark()["two"]
    assert predict(carried_path(run), data, domain="anything") == predict(carried_path(run), data)
    watcher = Notes()
    run_chain(tiny_benchmark(), "gsfda", model=carried_path(run), settings=read(QUICK), out=tmp_path, watcher=watcher)
    assert any("has no masks" in text for text in watcher.texts)


def test_adapting_to_a_known_domain_and_to_a_new_one(finished: Run, tmp_path: Path) -> None:
    model = load(carried_path(finished))
    before = copy.deepcopy(model.network)
    images = replace(tiny_domain("photos", seed=4), labels=None)
    known = adapt(model, images, "gsfda", domain="two", settings=read(("epochs=1",)))
    assert known.model.network.domains == NAMES
    watcher = Notes()
    short, labelled = read(("epochs=1",)), tiny_domain("photos", seed=4)
    grown = adapt(
        model, images, "gsfda", domain="photos", settings=short, out=tmp_path, watcher=watcher, check=labelled
    )
    assert grown.check is not None
    assert grown.check.before.top1 == evaluate(model, labelled, domain="one").top1, "as it is used until then"
    assert grown.check.after.top1 == evaluate(grown.model, labelled, domain="photos").top1
    assert any("new mask for photos" in text for text in watcher.texts)
    assert grown.model.network.domains == grown.model.architecture.domains == (*NAMES, "photos")
    assert same_weights(model.network, before), "the given model stays as it is"
    old, new = model.network, grown.model.network
    assert isinstance(old, MaskedNetwork)
    assert isinstance(new, MaskedNetwork)
    assert torch.equal(new.masks.embedding[:3], old.masks.embedding)
    closed = (old.masks().amax(0) > 0.999).detach()
    assert torch.equal(
        new.bottleneck[0].weight[closed],  # type: ignore[index]
        old.bottleneck[0].weight[closed],  # type: ignore[index]
    )
    stored = load(grown.model.save(tmp_path / "grown"))
    assert predict(stored, images, domain="photos") == predict(grown.model, images, domain="photos")


def test_a_chain_from_a_given_model_with_masks(finished: Run, tmp_path: Path) -> None:
    model = carried_path(finished, 0)
    run = run_chain(tiny_benchmark(), "gsfda", model=model, settings=read(QUICK), out=tmp_path)
    assert same_weights(load(carried_path(run)).network, load(carried_path(finished)).network)
    other = tiny_benchmark()
    other = replace(other, domains={"zero": tiny_domain("zero"), "two": other["two"]})
    with pytest.raises(CosdaError, match="no mask for a domain 'zero'"):
        run_chain(other, "gsfda", model=model, settings=read(QUICK), out=tmp_path)


@pytest.mark.parametrize("method", ["cosda", "bn", "source"])
def test_other_methods_go_on_with_a_model_with_masks(method: str, finished: Run, tmp_path: Path) -> None:
    changes = (*QUICK, "epochs=1") if method == "cosda" else QUICK
    run = run_chain(tiny_benchmark(), method, model=carried_path(finished, 0), settings=read(changes), out=tmp_path)
    assert run.matrix() is not None


def test_the_command_line_asks_for_the_domain(
    finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    domain = tiny_benchmark()["two"]
    assert domain.labels is not None
    for number, (image, label) in enumerate(zip(domain.items, domain.labels, strict=True)):  # type: ignore[call-overload]
        folder = tmp_path / "two" / "abc"[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(image)).save(folder / f"{number:02}.png")

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cosda", *map(str, words), "--quiet"])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    model = carried_path(finished)
    fitting = ("--method", "gsfda", "--epochs", 1, "--to", tmp_path / "new", "--out", tmp_path / "runs")
    for words in (("evaluate", model), ("predict", model), ("adapt", model)):
        more = fitting if words[0] == "adapt" else ()
        code, _, err = call(*words, tmp_path / "two", *more)
        assert code == 2
        assert "--domain NAME" in err
        assert "Known: one, two, three" in err
        code, out, err = call(*words, tmp_path / "two", "--domain", "two", *more)
        assert code == 0, err
        assert out
    assert load(tmp_path / "new").architecture.domains == NAMES
