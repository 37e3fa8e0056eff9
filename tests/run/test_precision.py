"""Precision and compilation: what they change, what they must not, and what is said where they cannot be had."""

from __future__ import annotations

import copy
import json
import math

import pytest
import torch
from typer.testing import CliRunner

from cosda.__main__ import app
from cosda.api import run_chain, train_source
from cosda.config.schema import Optimisation
from cosda.errors import CosdaError
from cosda.methods.cosda import CoSDA
from cosda.models import precision as arithmetic
from cosda.models.artifact import load
from cosda.models.bn_folding import evaluating
from cosda.models.network import Network, same_weights
from cosda.models.precision import Arithmetic, lacking
from cosda.run import environment
from cosda.run.chain import carried_path
from cosda.run.checkpoint import load_checkpoint, save_checkpoint
from cosda.run.evaluate import probabilities
from cosda.run.machine import Machine
from cosda.run.train import Training
from cosda.watch import Watcher
from tiny import CPU, read, tiny_benchmark, tiny_loader, tiny_network

CHANGES = (
    "epochs=3", "batch_size=8", "source.epochs=6", "source.batch_size=8", "source.lr=0.05", "source.encoder_rate=1",
    "network.encoder=small", "network.bottleneck=8", "data.size=16",
)  # fmt: skip


class Notes(Watcher):
    def __init__(self):
        self.texts = []

    def note(self, text):
        self.texts.append(text)


def chain(out, precision, watcher=None):
    changes = (*CHANGES, f"network.precision={precision}")
    return run_chain(tiny_benchmark(), domains=("one", "two"), settings=read(changes), out=out, watcher=watcher)


def weights_of(run):
    return load(carried_path(run)).network.state_dict()


@pytest.fixture(scope="module")
def run32(tmp_path_factory):
    return chain(tmp_path_factory.mktemp("precision") / "32", "32")


# --- Where a device lacks it ------------------------------------------------------------------------------------------


@pytest.fixture
def plain_cpu(monkeypatch):
    """A CPU without bf16, whatever this one has."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": False}, raising=False)


@pytest.mark.parametrize(("precision", "reason"), [("bf16", "this CPU has no bf16 arithmetic"), ("16", "for GPUs")])
def test_a_cpu_without_it_says_so_once_and_gives_the_bits_of_32(run32, precision, reason, plain_cpu, tmp_path):
    watcher = Notes()
    run = chain(tmp_path, precision, watcher)
    assert [reason in text and "float32" in text for text in watcher.texts] == [True]
    assert run.config["settings"]["network"]["precision"] == precision
    assert run.environment["precision"] == run32.environment["precision"] == "32"
    assert run.records == run32.records
    wanted, got = weights_of(run32), weights_of(run)
    assert all(torch.equal(value, got[key]) for key, value in wanted.items())


def test_what_processors_have(monkeypatch):
    assert lacking("32", CPU) == ""
    for name in arithmetic.BF16:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda name=name: {name: True}, raising=False)
        assert lacking("bf16", CPU) == ""
        assert "GPU" in lacking("16", CPU)
    assert lacking("16", torch.device("cuda")) == ""


def test_a_cpu_that_dies_of_it_is_found_out(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    monkeypatch.setattr(arithmetic, "TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    watcher = Notes()
    assert environment.open_arithmetic("bf16", False, CPU, watcher) == Arithmetic("32")
    assert ["fails" in text and "float32" in text for text in watcher.texts] == [True]


def test_only_known_precisions(tmp_path):
    with pytest.raises(CosdaError, match="precision = 8 is not possible; it must be one of 32, bf16, 16"):
        chain(tmp_path, "8")


# --- Where it has it --------------------------------------------------------------------------------------------------


@pytest.fixture
def any_cpu(monkeypatch):
    """Let this CPU take every precision; it imitates those that it lacks."""
    monkeypatch.setattr(environment, "lacking", lambda precision, device: "")


def test_bf16_is_as_accurate_and_weights_stay_float32(run32, any_cpu, tmp_path):
    run = chain(tmp_path, "bf16")
    assert run.environment["precision"] == "bf16"
    assert all(value.dtype != torch.bfloat16 for value in weights_of(run).values())
    assert run.records != run32.records  # it was really used
    wanted, got = (accuracies(one) for one in (run32, run))
    assert wanted["one"] > 0.8  # three classes: 1/3 by chance
    assert all(abs(got[name] - wanted[name]) <= 0.1 for name in wanted)  # of ten test images each


def accuracies(run):
    found = [record for record in run.of("accuracy") if record["epoch"] is None and record["stage"] == 1]
    return {record["domain"]: sum(record["correct"]) / sum(record["images"]) for record in found}


@pytest.mark.parametrize("precision", ["bf16", "16"])
def test_outputs_are_float32_and_near(precision):
    network, images = tiny_network().eval(), torch.randn(8, 3, 16, 16)
    wanted = network(images)
    network.arithmetic = Arithmetic(precision)
    got = network(images)
    assert {part.dtype for part in got} == {torch.float32}
    assert not torch.equal(got.features, wanted.features)
    torch.testing.assert_close(got.features, wanted.features, atol=0.03, rtol=0.03)
    with evaluating(network) as fast:
        torch.testing.assert_close(fast(images).features, wanted.features, atol=0.03, rtol=0.03)


def test_precision_goes_with_the_network():
    network = tiny_network()
    network.arithmetic = Arithmetic("bf16")
    for other in (copy.deepcopy(network), network.with_encoder(torch.nn.Identity()), network.for_domain(None)):
        assert other.arithmetic == Arithmetic("bf16")
    assert Network.arithmetic == tiny_network().arithmetic == Arithmetic()


def test_the_source_is_trained_in_it_too(any_cpu, tmp_path):
    changes = (*CHANGES, "network.precision=bf16", "source.epochs=1")
    train_source(tiny_benchmark(), "one", settings=read(changes), out=tmp_path)
    (found,) = tmp_path.glob("sources/*/environment.json")
    assert json.loads(found.read_text())["precision"] == "bf16"


# --- float16: losses are scaled ---------------------------------------------------------------------------------------


def half_training(epochs=2):
    student = tiny_network()
    student.arithmetic = Arithmetic("16")
    return Training(CoSDA(), student, tiny_loader(), Optimisation(epochs=epochs, lr=1e-2), 0, 1, "target")


def test_float16_trains_with_scaled_losses_and_goes_on_from_a_checkpoint(tmp_path):
    whole, first = half_training(), half_training()
    assert whole.scaler.is_enabled()
    whole.run(lambda facts: None)
    first.how = Optimisation(epochs=2, lr=1e-2)

    class Killed(Exception):
        pass

    def stop(facts):
        save_checkpoint(tmp_path / "state", first.state_dict())
        raise Killed

    with pytest.raises(Killed):
        first.run(stop)
    second = half_training()
    second.load_state_dict(load_checkpoint(tmp_path / "state"))
    assert second.epoch == 1
    assert second.scaler.state_dict() == first.scaler.state_dict()
    assert second.scaler.state_dict()["_growth_tracker"] == 3  # steps since the last overflow
    second.run(lambda facts: None)
    assert same_weights(second.student, whole.student)
    assert {parameter.dtype for parameter in whole.student.parameters()} == {torch.float32}


def test_a_gradient_that_overflows_is_not_taken():
    training = half_training()
    before, scale = copy.deepcopy(training.student.state_dict()), training.scaler.get_scale()
    weight = training.student.classifier.bias
    training._update({"steep": weight.sum() * 1e36})  # finite, but not when it is scaled
    assert same_weights(training.student, _with_state(before))
    assert training.scaler.get_scale() == scale / 2
    training._update({"gentle": weight.sum()})
    assert not same_weights(training.student, _with_state(before))
    assert math.isclose(float((before["classifier.bias"] - weight.detach()).mean()), 1e-2, rel_tol=0.01)  # unscaled


def _with_state(state):
    network = tiny_network()
    network.load_state_dict(state)
    return network


# --- torch.compile ----------------------------------------------------------------------------------------------------


def cosda_training(compiled):
    student = tiny_network()
    student.arithmetic = Arithmetic(compiled=compiled, backend="aot_eager")
    return Training(CoSDA(), student, tiny_loader(count=18), Optimisation(epochs=1, lr=1e-2), 0, 1, "target")


def test_compiled_training_and_measuring_are_the_same_within_rounding(tmp_path):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    facts, plain, compiled = [], cosda_training(False), cosda_training(True)
    for training in (plain, compiled):
        training.run(lambda found: facts.append(found.terms))
    assert facts[1] == pytest.approx(facts[0], rel=1e-3)
    teacher = compiled.method.predictor()
    for network in (compiled.student, teacher):
        assert network.encoder._compiled_call_impl is not None
        assert network.state_dict().keys() == plain.student.state_dict().keys()
    scores = [probabilities(training.method.predictor(), tiny_loader(count=18)) for training in (plain, compiled)]
    assert abs(scores[0] - scores[1]).max() < 1e-3
    # Student in training, teacher labelling and predicting; a second version where the last batch is small.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 6
    assert not torch._dynamo.utils.counters["graph_break"]

    save_checkpoint(tmp_path / "state", compiled.state_dict())
    again = cosda_training(False)
    again.load_state_dict(load_checkpoint(tmp_path / "state"))
    assert same_weights(again.student, compiled.student)


def test_no_compiler_is_an_error_before_anything_is_written():
    from torch._inductor import config

    with (
        config.patch({"cpp.cxx": ("no-such-compiler",)}),
        pytest.raises(CosdaError, match=r"--compile needs a C\+\+ compiler.*leave --compile out"),
    ):
        Machine(compile=True)
    assert not Machine().compile


# --- The command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [["--threads", "2", "--precision", "16"], ["--compile"]])
def test_options_reach_the_run(vectors, options, tmp_path):
    before = torch.get_num_threads()
    words = ["--domain", "one", "--model", str(tmp_path / "model"), "--out", str(tmp_path / "runs"), "--epochs", "1"]
    try:
        done = CliRunner().invoke(app, ["source", vectors, *words, "--quiet", *options])
    finally:
        torch.set_num_threads(before)
    assert done.exit_code == 0, done.output
    (found,) = (tmp_path / "runs").glob("sources/*/environment.json")
    made, asked = (json.loads((found.parent / name).read_text()) for name in ("environment.json", "config.json"))
    assert made["threads"] == (2 if "--threads" in options else before)
    assert made["compiled"] == ("--compile" in options)
    assert made["precision"] == "32"
    # What was asked for names the model; without a wish its name is that of times before there was a choice.
    assert asked["settings"]["network"].get("precision") == ("16" if "--precision" in options else "32")


@pytest.mark.parametrize("command", ["source", "run", "adapt", "bench"])
def test_every_command_that_trains_has_the_options(command):
    shown = CliRunner().invoke(app, [command, "--help"]).output
    assert "--precision" in shown
    assert "--compile" in shown
    assert ("--cores-per-run" if command == "bench" else "--threads") in shown
