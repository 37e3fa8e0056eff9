"""Runs with carry rule `bank`, from end to end: measured, recorded, resumed, adapted again, and refused in time."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benches import lines_recorded, results
from cosda.api import adapt, evaluate, make_plan, predict, run_chain
from cosda.config.request import Request
from cosda.data.domain import Benchmark, Domain
from cosda.data.loader import open_loader
from cosda.errors import CosdaError
from cosda.methods import METHODS
from cosda.models.artifact import Model, load
from cosda.models.experts import DomainBank
from cosda.models.network import same_weights
from cosda.models.profile import FEWEST, crossfitted
from cosda.models.router import Gauge, Router
from cosda.models.wrap import wrap
from cosda.preprocessing import FEATURE_VECTORS
from cosda.records.run import Run
from cosda.run.chain import carried_path
from cosda.run.evaluate import measure
from cosda.run.routed import routed
from cosda.run.train import Training
from cosda.watch import Watcher
from tiny import CLASSES, CPU, SEEN, WIDTH, read, tiny_benchmark, tiny_domain
from waiting import ended, wait_until

NAMES = ("one", "two", "three")
VECTORS = ("epochs=1", "source.epochs=1", "batch_size=8", "network.bottleneck=8", "lr=0.05", "lr_end=0.05")
IMAGES = (*VECTORS, "source.batch_size=8", "network.encoder=small", "data.size=16", "data.flip=false")
BANK = "carry=bank"


def chain(out: Path, *changes: str, method: str = "aad", images: bool = True, **more: Any) -> Run:
    changes = (*(IMAGES if images else VECTORS), BANK, *changes)
    data = more.pop("data", None) or tiny_benchmark(features=not images)
    return run_chain(data, method, settings=read(changes), out=out, **more)


def bank_of(run: Run, stage: int | None = None) -> DomainBank:
    network = load(carried_path(run, stage)).network
    assert isinstance(network, DomainBank)
    return network


def photos(name: str, seed: int, count: int = 30) -> Domain:
    """New images without labels."""
    return replace(tiny_domain(name, count, seed=seed), labels=None)


class Notes(Watcher):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


class NoTraining(Watcher):
    """Fails when an epoch begins."""

    def begin(self, task: str, steps: int, unit: str = "steps") -> None:
        assert unit != "steps", f"{task} was trained before the error"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return chain(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def source(finished: Run) -> Model:
    return load(carried_path(finished, 0))


# --- What is measured and recorded ------------------------------------------------------------------------------------


def test_each_stage_adds_an_expert_and_changes_nothing_else(finished: Run, source: Model) -> None:
    assert [bank_of(finished, stage).known for stage in (1, 2)] == [("one", "two"), NAMES]
    for stage in (1, 2):
        assert same_weights(bank_of(finished, stage).base, source.network)
    assert same_weights(bank_of(finished, 1).expert("two"), bank_of(finished, 2).expert("two"))
    assert not same_weights(bank_of(finished, 2).expert("three"), source.network)
    first, second = (carried_path(finished, stage) for stage in (1, 2))
    for name in ("expert-1", "profile-1", "profile-0", "encoder", "head"):
        assert (first / f"{name}.safetensors").read_bytes() == (second / f"{name}.safetensors").read_bytes()


def test_every_cell_is_that_of_the_routed_model_without_a_domain_id(finished: Run) -> None:
    matrix = finished.matrix()
    assert matrix is not None
    for stage in (1, 2):
        model = load(carried_path(finished, stage))
        for column, domain in enumerate(tiny_benchmark()):
            assert domain.labels is not None
            loader = open_loader(domain, "test", model.preprocessing, CPU, 64)
            images, correct = measure(model.network, loader, domain.labels[domain.test], 3)
            record = next(finished.of("accuracy", stage=stage, epoch=None, domain=domain.name))
            assert (record["images"], record["correct"]) == (images, correct)
            assert matrix[stage][column] == sum(correct) / sum(images)
            assert evaluate(model, domain).correct == correct


def test_records_say_where_images_went(finished: Run) -> None:
    routing = list(finished.of("routing"))
    assert [(record["stage"], record["domain"]) for record in routing] == [(s, d) for s in (1, 2) for d in NAMES]
    for record in routing:
        bank = bank_of(finished, record["stage"])
        domain = tiny_benchmark()[record["domain"]]
        [batch] = open_loader(domain, "test", SEEN, CPU, 64).sweep("test")
        found = bank.route(bank.gauge(batch.images))
        assert record["known"] == list(bank.known)
        assert record["sent"] == np.bincount(found.posterior.argmax(dim=1), minlength=len(bank.known)).tolist()
        assert record["mixed"] == sum(float(row.max()) < 1 for row in found.shares)
        assert record["unknown"] == int(found.unknown.sum())
        assert record["crossfitted"] is False
        assert sum(record["sent"]) == len(domain.test)


def test_records_say_what_the_expert_alone_would_do(finished: Run) -> None:
    records = list(finished.of("expert"))
    assert [(record["stage"], record["domain"], record["split"]) for record in records] == [
        (1, "two", "test"),
        (2, "three", "test"),
    ]
    for record in records:
        name = record["domain"]
        told = evaluate(carried_path(finished, record["stage"]), tiny_benchmark()[name], domain=name)
        assert (record["images"], record["correct"]) == (told.images, told.correct)


def test_records_and_lineage_say_what_was_carried(finished: Run) -> None:
    carried = [{key: record[key] for key in ("rule", "began", "bits", "share")} for record in finished.of("carried")]
    assert carried == [
        {"rule": "bank", "began": "one", "bits": 4, "share": 0.0},
        {"rule": "bank", "began": "two", "bits": 4, "share": 0.0},
    ]
    steps = load(carried_path(finished)).lineage
    assert [step["step"] for step in steps] == ["source", "adapt", "adapt"]
    assert [(step["domain"], step["carry"], step["images"]) for step in steps[1:]] == [
        ("two", "bank", 20),
        ("three", "bank", 20),
    ]
    assert finished.label == "aad (carry bank)"


def test_experts_begin_where_they_are_told(finished: Run, tmp_path: Path) -> None:
    out = finished.path.parent
    base = chain(out, "adapt.begin=base")
    assert [record["began"] for record in base.of("carried")] == ["one", "one"]
    alone = chain(out, "adapt.begin=base", domains=("one", "three"))
    assert not same_weights(bank_of(base).expert("three"), bank_of(finished).expert("three"))
    # The same images, steps and weights, but another stage, so another order of images: only its beginning is equal.
    assert [record["began"] for record in alone.of("carried")] == ["one"]
    near = chain(out, "adapt.begin=nearest")
    began = [record["began"] for record in near.of("carried")]
    bank, domain = bank_of(near, 1), tiny_benchmark()["three"]
    [batch] = open_loader(domain, "train", SEEN, CPU, 64).sweep("test")
    assert began == ["one", bank.known[int(bank.route(bank.gauge(batch.images)).posterior.mean(dim=0).argmax())]]


@pytest.mark.parametrize("bits", [2, 8])
def test_more_bits_are_more_bytes_and_nearer(bits: int, finished: Run) -> None:
    other = chain(finished.path.parent, f"carry=bank={bits}", domains=("one", "two"))
    four = chain(finished.path.parent, domains=("one", "two"))
    sizes = [(carried_path(run) / "expert-1.safetensors").stat().st_size for run in (other, four)]
    assert (sizes[0] > sizes[1]) == (bits > 4)
    assert [expert.bits for expert in bank_of(other).experts] == [bits]
    assert other.label == f"aad (carry bank {bits})"


def test_in_the_transductive_protocol_no_image_is_routed_by_itself(tmp_path: Path) -> None:
    given = tiny_benchmark()
    everything = np.arange(30, dtype=np.int64)
    same = {name: replace(domain, train=everything, test=everything) for name, domain in given.domains.items()}
    run = chain(tmp_path, data=Benchmark("tiny", same, CLASSES))
    last = list(run.of("routing", stage=2))
    assert [record["crossfitted"] for record in last] == [True, True, True]
    assert [record["crossfitted"] for record in run.of("routing", stage=1)] == [True, True, False]
    bank = bank_of(run)
    first, second = bank.experts
    first = replace(first, profile=replace(first.profile, temperature=30.0))
    bank = DomainBank(bank.base, [first, second])
    loader = open_loader(same["two"], "test", SEEN, CPU, 64)
    [batch] = loader.sweep("test")
    found, seen, own = routed(bank, same["two"], loader), bank.gauge(batch.images), bank.profiles[1]
    for row in range(30):
        fold = next(part for chosen, part in crossfitted("two", seen) if chosen[row])
        stand_in = replace(fold, distances=own.distances, temperature=own.temperature)
        router = Router((bank.profiles[0], stand_in, bank.profiles[2]))
        assert torch.allclose(found.routing.posterior[row], router.posterior(seen[row : row + 1])[0], rtol=1e-9)
        assert found.routing.unknown[row] == router.unknown(seen[row : row + 1])[0]
    assert not torch.allclose(found.routing.posterior, bank.route(seen).posterior, rtol=1e-3)
    assert found.facts(bank)["crossfitted"]


def test_labels_of_targets_do_not_change_a_bit(finished: Run, tmp_path: Path) -> None:
    given = tiny_benchmark()
    changed = {n: d if n == "one" else d.with_labels_shuffled(3) for n, d in given.domains.items()}
    other = chain(tmp_path, data=replace(given, domains=changed))
    assert other.matrix() != finished.matrix()
    for path in sorted(carried_path(finished).glob("*.safetensors")):
        assert (carried_path(other) / path.name).read_bytes() == path.read_bytes()
    assert list(other.of("routing")) == list(finished.of("routing"))


@pytest.mark.parametrize("rule", ["last", "interpolate=0.5"])
def test_with_another_rule_the_profile_is_of_the_network_that_is_handed_on(rule: str, tmp_path: Path) -> None:
    run = chain(tmp_path, f"carry={rule}", "epochs=2", domains=("one", "two"))
    [batch] = open_loader(tiny_benchmark()["two"], "train", SEEN, CPU, 64).sweep("test")
    before, after = (load(carried_path(run, stage)).network for stage in (0, 1))
    assert after.profile is not None
    assert after.profile.name == "two"
    seen, old = (Gauge(network.encoder)(batch.images).mean(dim=0) for network in (after, before))
    torch.testing.assert_close(after.profile.mean, seen, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(seen, old, rtol=1e-2, atol=1e-3), "training that moves nothing shows nothing"


@pytest.mark.parametrize("method", METHODS)
def test_every_method_leaves_experts(method: str, tmp_path: Path) -> None:
    changes = ("augmentations=1",) if method == "cotta" else ()
    run = chain(tmp_path, *changes, method=method, images=False)
    bank = bank_of(run)
    assert bank.known == NAMES
    assert run.matrix() is not None
    assert len(list(run.of("expert"))) == 2
    assert same_weights(bank.base, load(carried_path(run, 0)).network)
    moved = [not same_weights(bank.expert(name), bank.base) for name in NAMES[1:]]
    assert moved == [method != "source"] * 2
    images = torch.from_numpy(np.asarray(tiny_benchmark(features=True)["two"].items))
    assert bool(bank(images).logits.isfinite().all())


# --- Killed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "changes"),
    [("aad", ()), ("shot", ("network.freeze_encoder=true",)), ("gsfda", ("adapt.begin=nearest",))],
    ids=["whole", "frozen", "masked"],
)
def test_stopped_at_every_checkpoint_it_ends_with_the_same_bits(
    method: str, changes: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each epoch of each training, and between the files of a stage."""
    whole = chain(tmp_path / "whole", "epochs=2", *changes, method=method)
    train, stops = Training._train_epoch, 0

    class Stop(Exception):
        pass

    def stopping(self: Training) -> object:
        """Each epoch is trained at the second attempt, and stopped once more when it is done."""
        nonlocal stops
        key = (self.name, self.epoch)
        tried[key] = tried.get(key, 0) + 1
        if tried[key] == 1:
            raise Stop
        facts = train(self)
        if tried[key] == 2:
            raise Stop
        return facts

    tried: dict[tuple[str, int], int] = {}
    monkeypatch.setattr(Training, "_train_epoch", stopping)
    while True:
        try:
            parts = chain(tmp_path / "parts", "epochs=2", *changes, method=method)
            break
        except Stop:
            stops += 1
    assert stops == 2 * len(tried) == 2 * (1 + 2 * 2)
    assert parts.records == whole.records
    wanted, got = results(tmp_path / "whole"), results(tmp_path / "parts")
    assert got.keys() == wanted.keys()
    assert [name for name in wanted if wanted[name] != got[name]] == []


PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
import torch
torch.set_num_threads(1)
from test_domain_bank import chain
chain(Path(sys.argv[1]), "epochs=3")
"""


def test_killed_and_started_again_gives_the_same_bits(tmp_path: Path) -> None:
    here = Path(__file__).parent
    command = [sys.executable, "-c", PROGRAM.format(paths=[str(here), str(here.parent)]), str(tmp_path / "killed")]
    kills = 0
    for lines in (8, 16):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with ended(process):
            wait_until(lambda lines=lines: lines_recorded(tmp_path / "killed") >= lines, f"{lines} lines", process)
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                kills += 1
    assert kills == 2, "the run must have been killed for this test to mean anything"
    chain(tmp_path / "killed", "epochs=3")
    chain(tmp_path / "whole", "epochs=3")
    wanted, got = results(tmp_path / "whole"), results(tmp_path / "killed")
    assert [name for name in wanted if wanted[name] != got.get(name)] == []
    assert got.keys() == wanted.keys()


# --- Other networks ---------------------------------------------------------------------------------------------------


def test_a_frozen_encoder_is_shared_by_all_experts(tmp_path: Path) -> None:
    run = chain(tmp_path, "network.freeze_encoder=true")
    bank = bank_of(run)
    assert bank.late
    assert bank.profile is not None
    assert bank.profile.late
    for name in NAMES:
        assert same_weights(bank.expert(name).encoder, bank.encoder)
    assert not any(key.startswith("encoder.") for expert in bank.experts for key in expert.tensors())
    for domain in tiny_benchmark():
        record = next(run.of("accuracy", stage=2, epoch=None, domain=domain.name))
        assert evaluate(carried_path(run), domain).correct == record["correct"]


def test_a_frozen_bank_goes_on_frozen(tmp_path: Path) -> None:
    run = chain(tmp_path, "network.freeze_encoder=true")
    again = adapt(carried_path(run), photos("four", 4), "aad", epochs=1, batch_size=8)
    bank = again.model.network
    assert isinstance(bank, DomainBank)
    assert bank.late
    assert same_weights(bank.expert("four").encoder, bank.encoder)
    with pytest.raises(CosdaError, match="freeze_encoder"):
        adapt(carried_path(run), photos("four", 4), "aad", epochs=1, freeze_encoder=False, watcher=NoTraining())


def test_a_bank_of_whole_experts_cannot_be_frozen(finished: Run) -> None:
    with pytest.raises(CosdaError, match=r"encoder of its own.*--freeze-encoder"):
        adapt(carried_path(finished), photos("four", 4), "aad", freeze_encoder=True, watcher=NoTraining())


class Mine(nn.Module):
    """A classifier of the user's own; with BatchNorm or without any normalisation."""

    def __init__(self, norm: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8) if norm else nn.Identity(), nn.ReLU())
        self.top = nn.Linear(8, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.top(self.body(images).mean(dim=(2, 3)))


@pytest.mark.parametrize("norm", [True, False], ids=["BatchNorm", "no norm"])
def test_a_model_from_elsewhere_has_no_profile_and_says_what_that_costs(norm: bool, tmp_path: Path) -> None:
    mine, watcher = wrap(Mine(norm), CLASSES, preprocessing=SEEN), Notes()
    before = copy.deepcopy(mine.network)
    options: dict[str, Any] = {"epochs": 1, "batch_size": 8, "carry": "bank"}
    first = adapt(mine, photos("shop", 1), "aad", watcher=watcher, **options).model
    [note] = [text for text in watcher.texts if "no profile" in text]
    assert "cosda profile MODEL FOLDER" in note
    assert ("BatchNorm statistics stand in" in note) == norm
    bank = first.network
    assert isinstance(bank, DomainBank)
    assert bank.known == ("source", "shop")
    assert (bank.profile is not None) == norm
    second = adapt(first, photos("yard", 5), "aad", **options).model
    assert isinstance(second.network, DomainBank)
    assert second.network.known == ("source", "shop", "yard")
    assert same_weights(second.network.base, before)
    assert same_weights(second.network.expert("shop"), bank.expert("shop"))
    assert not same_weights(second.network.expert("yard").encoder, before.encoder)
    stored = load(second.save(tmp_path / "bank"), build=lambda: Mine(norm))
    assert predict(stored, photos("shop", 1)) == predict(second, photos("shop", 1))
    assert isinstance(second.module("yard"), Mine)


def test_a_model_of_feature_vectors_with_an_encoder_of_its_own(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    mine = wrap(network, CLASSES, preprocessing=FEATURE_VECTORS, example=torch.randn(4, WIDTH))
    options: dict[str, Any] = {"epochs": 1, "batch_size": 8, "carry": "bank"}
    vectors = replace(tiny_domain("shop", features=True, seed=2), labels=None)
    bank = adapt(mine, vectors, "aad", **options).model.network
    assert isinstance(bank, DomainBank)
    assert not same_weights(bank.expert("shop").encoder, bank.encoder)
    assert bool(bank(torch.randn(5, WIDTH)).logits.isfinite().all())


def test_masks_need_no_domain_in_a_bank(tmp_path: Path) -> None:
    run = chain(tmp_path, method="gsfda")
    bank, data = bank_of(run), tiny_benchmark()["two"]
    assert bank.domains == NAMES
    record = next(run.of("accuracy", stage=2, epoch=None, domain="two"))
    assert evaluate(carried_path(run), data).correct == record["correct"]
    watcher = Notes()
    grown = adapt(carried_path(run), photos("four", 4), "gsfda", epochs=1, batch_size=8, watcher=watcher).model
    assert any("new mask for four" in text for text in watcher.texts)
    assert isinstance(grown.network, DomainBank)
    assert grown.network.known == grown.network.domains == grown.architecture.domains == (*NAMES, "four")
    path = grown.save(tmp_path / "grown")
    assert predict(path, data) == predict(grown, data)
    for name in NAMES:
        assert same_weights(grown.network.expert(name).encoder, bank.expert(name).encoder)


# --- Adapted again ----------------------------------------------------------------------------------------------------


def test_a_bank_goes_on_as_a_bank(finished: Run, tmp_path: Path) -> None:
    model = load(carried_path(finished))
    key = model.key
    quick: dict[str, Any] = {"epochs": 1, "batch_size": 8}
    second = adapt(model, photos("four", 4), "aad", **quick).model
    third = adapt(second, photos("five", 6), "shot", carry="bank=8", **quick).model
    fourth = adapt(third, photos("six", 8), "shot", **quick).model
    banks = [each.network for each in (model, second, third, fourth)]
    assert [bank.known[3:] for bank in banks if isinstance(bank, DomainBank)] == [
        (),
        ("four",),
        ("four", "five"),
        ("four", "five", "six"),
    ]
    last = banks[-1]
    assert isinstance(last, DomainBank)
    assert [expert.bits for expert in last.experts] == [4, 4, 4, 8, 8], "a new expert is like the last one"
    assert model.key == key, "the given model stays as it is"
    for bank in banks[1:]:
        assert isinstance(bank, DomainBank)
        assert same_weights(bank.base, model.network.base)
        assert all(same_weights(bank.expert(name), bank_of(finished).expert(name)) for name in NAMES)
    stored = load(fourth.save(tmp_path / "fourth"))
    assert predict(stored, photos("four", 4)) == predict(fourth, photos("four", 4))


def test_a_known_domain_is_adapted_from_its_expert_and_replaces_it(finished: Run, tmp_path: Path) -> None:
    model = load(carried_path(finished))
    run = adapt(model, photos("two", 4), "aad", epochs=1, batch_size=8, out=tmp_path)
    bank, old = run.model.network, bank_of(finished)
    assert isinstance(bank, DomainBank)
    assert sorted(bank.known) == sorted(NAMES)
    assert [record["began"] for record in run.run.of("carried")] == ["two"]
    assert not same_weights(bank.expert("two"), old.expert("two"))
    assert same_weights(bank.expert("three"), old.expert("three"))
    left = adapt(model, photos("two", 4), "source", out=tmp_path).model.network
    assert isinstance(left, DomainBank)
    for name, value in left.expert("two").state_dict().items():  # not adapted at all, it is packed once more
        torch.testing.assert_close(value, old.expert("two").state_dict()[name], rtol=0.1, atol=0.01)


def test_a_check_is_routed_before_and_after(finished: Run) -> None:
    labelled = tiny_benchmark()["three"]
    result = adapt(
        carried_path(finished), photos("four", 4), "aad", domain="shop", check=labelled, epochs=1, batch_size=8
    )
    assert result.check is not None
    assert result.check.before.correct == evaluate(carried_path(finished), labelled).correct
    assert result.check.after.correct == evaluate(result.model, labelled).correct


# --- Refused before any training --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["last", "interpolate=0.5", "along", "auto"])
def test_another_rule_on_a_bank_is_an_error_before_any_training(rule: str, finished: Run) -> None:
    with pytest.raises(CosdaError, match=r"domain bank.*--carry bank"):
        adapt(carried_path(finished), photos("four", 4), "aad", carry=rule, watcher=NoTraining())


def test_another_rule_after_a_bank_is_an_error_and_before_it_is_not() -> None:
    def plan(*changes: str) -> object:
        return make_plan(tiny_benchmark(), Request.of("aad", settings=read(changes)))

    with pytest.raises(CosdaError, match=r"'three' has the carry rule 'last'.*--carry bank"):
        plan(BANK, "stage.three.carry=last")
    with pytest.raises(CosdaError, match=r"'three' has the carry rule 'interpolate=0\.5'"):
        plan("carry=interpolate=0.5", "stage.two.carry=bank")
    plan("carry=last", "stage.three.carry=bank")


def test_a_bank_may_follow_another_rule(tmp_path: Path) -> None:
    """What the rule before handed on is then the base."""
    run = chain(tmp_path, "carry=last", "stage.three.carry=bank")
    assert bank_of(run).known == ("two", "three")
    assert same_weights(bank_of(run).base, load(carried_path(run, 1)).network)


def test_too_few_images_are_an_error_before_any_training(finished: Run, tmp_path: Path) -> None:
    """Of the last target too: nobody waits for two stages to hear it."""
    given = tiny_benchmark()
    few = replace(given, domains={**given.domains, "three": tiny_domain("three", 27, seed=2)})
    with pytest.raises(CosdaError, match="'three' has 18 images"):
        chain(tmp_path, data=few, watcher=NoTraining())
    with pytest.raises(CosdaError, match=f"at least {FEWEST}"):
        adapt(carried_path(finished), photos("four", 4, count=FEWEST - 1), "aad", watcher=NoTraining())


def test_the_bases_name_is_refused_as_a_target(finished: Run, source: Model) -> None:
    for model in (source, load(carried_path(finished))):
        with pytest.raises(CosdaError, match=r"'one' is what the model was trained on.*--domain NAME"):
            adapt(model, photos("one", 4), "aad", carry="bank", watcher=NoTraining())
    adapt(source, photos("one", 4), "aad", carry="bank", domain="other", epochs=0)


def test_a_domain_may_be_called_source(tmp_path: Path) -> None:
    given = tiny_benchmark()
    domains = {"one": given["one"], "source": replace(given["two"], name="source")}
    assert bank_of(chain(tmp_path, data=replace(given, domains=domains))).known == ("one", "source")


@pytest.mark.parametrize("bits", ["3", "1", "16", "4.5", "true", "many"])
def test_other_bits_are_refused(bits: str) -> None:
    with pytest.raises(CosdaError, match="2, 4 or 8"):
        make_plan(tiny_benchmark(), Request.of("aad", settings=read((f"carry=bank={bits}",))))
