"""What every method must hold, found from the registry: a new method is tested by being there."""

from __future__ import annotations

import copy

import pytest
import torch

from cosda.config.schema import Optimisation
from cosda.methods import METHODS, Method
from cosda.methods.base import Progress
from cosda.models.bn_folding import evaluating
from cosda.models.network import Network, same_weights
from cosda.randomness import stream
from cosda.run.train import Training
from cosda.types import Batch
from tiny import CPU, tiny_loader, tiny_network

KINDS = ("batch_norm", "plain", "features")


@pytest.fixture(params=sorted(METHODS))
def method(request: pytest.FixtureRequest) -> Method:
    return METHODS[request.param]()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def training(method: Method, kind: str, epochs: int = 2, seed: int = 0, student: Network | None = None) -> Training:
    how = Optimisation(epochs=epochs, batch_size=8, lr=0.05, lr_end=0.01)
    loader = tiny_loader(kind, count=20, batch_size=8, seed=seed)
    return Training(method, student or tiny_network(kind), loader, how, seed, 1, "target")


def trained(method: Method, kind: str, **options: int) -> Network:
    job = training(method, kind, **options)
    job.run(lambda facts: None)
    return method.predictor("target")


def begun(method: Method, kind: str) -> Training:
    job = training(method, kind)
    method.begin_epoch(Progress(1, 0, 2, stream(0, "test")))
    return job


def first_batch(job: Training) -> Batch:
    return next(iter(job.loader.epoch(1, 0, job.method.views)))


def test_losses_are_finite_named_scalars_with_gradient(method: Method, kind: str) -> None:
    job = begun(method, kind)
    for name, term in method.step(first_batch(job)).items():
        assert isinstance(name, str)
        assert term.shape == ()
        assert torch.isfinite(term)
        assert term.requires_grad


def test_only_its_parameters_move(method: Method, kind: str) -> None:
    student = tiny_network(kind)
    before = copy.deepcopy(dict(student.named_parameters()))
    job = training(method, kind, student=student)
    mine = {id(p) for group in method.parameters() for p in group.parameters}
    job.run(lambda facts: None)
    for name, parameter in student.named_parameters():
        moved = not torch.equal(parameter, before[name])
        assert moved == (id(parameter) in mine), name


def test_the_encoder_is_trained_at_its_own_rate(method: Method) -> None:
    """One step from equal weights moves the encoder in proportion to `encoder_rate`, and the rest as much as before."""
    moves = []
    for rate in (0.5, 0.125, 0.0):
        student = tiny_network()
        before = copy.deepcopy(dict(student.named_parameters()))
        settings = Optimisation(epochs=1, batch_size=20, lr=0.05, lr_end=0.05)
        loader = tiny_loader(count=20, batch_size=20)
        training = Training(type(method)(encoder_rate=rate), student, loader, settings, 0, 1, "target")
        training.run(lambda facts: None)
        moves.append({name: (p - before[name]).detach() for name, p in student.named_parameters()})
    half, eighth, none = moves
    for name, move in half.items():
        part = 4 if name.startswith("encoder") else 1
        torch.testing.assert_close(part * eighth[name], move, rtol=1e-3, atol=1e-6)
        assert not name.startswith("encoder") or not none[name].any(), name
    moved = any(bool(move.any()) for name, move in half.items() if name.startswith("encoder"))
    assert moved == any(bool(move.any()) for move in half.values()), "who trains anything trains the encoder"


def test_same_seed_same_bits_and_another_seed_others(kind: str, method: Method) -> None:
    again, other = type(method)(), type(method)()
    first = trained(method, kind)
    assert same_weights(first, trained(again, kind))
    if method.parameters():
        assert not same_weights(first, trained(other, kind, seed=1))


def test_predicting_leaves_training_alone(method: Method, kind: str) -> None:
    """Measuring after each epoch must not change what is learnt."""
    other = type(method)()
    quiet, watched = training(method, kind), training(other, kind)
    quiet.run(lambda facts: None)

    def measure(facts: object) -> None:
        model = other.predictor("target")
        with evaluating(model):
            for batch in watched.loader.sweep():
                model(batch.images)

    watched.run(measure)
    assert same_weights(quiet.student, watched.student)
    assert same_weights(method.predictor("target"), other.predictor("target"))


def test_state_survives_save_and_load(method: Method, kind: str) -> None:
    """Stop after the first of three epochs, go on with new objects, and end with the same bits."""
    whole = training(method, kind, epochs=3)
    states = []
    whole.run(lambda facts: states.append(copy.deepcopy(whole.state_dict())))
    if not states:  # a method without epochs has nothing to resume
        return
    resumed = training(type(method)(), kind, epochs=3, student=tiny_network(kind, seed=5))
    resumed.load_state_dict(states[0])
    resumed.run(lambda facts: None)
    assert same_weights(whole.student, resumed.student)
    assert same_weights(method.predictor("target"), resumed.method.predictor("target"))


def test_ready_for_the_next_domain(method: Method, kind: str) -> None:
    """The same object goes on with the model that it handed over, and all that was trainable still is."""
    student = tiny_network(kind)
    first = training(method, kind, student=student)
    groups = [len(group.parameters) for group in method.parameters()]
    first.run(lambda facts: None)
    student.load_state_dict(method.predictor("target").state_dict())
    second = training(method, kind, student=student, seed=1)
    assert [len(group.parameters) for group in method.parameters()] == groups
    second.run(lambda facts: None)
    assert all(torch.isfinite(value).all() for value in method.predictor("target").state_dict().values())


def test_batch_of_one_image(method: Method, kind: str) -> None:
    job = begun(method, kind)
    batch = first_batch(job)
    single = Batch(tuple(view[:1] for view in batch.views), batch.index[:1])
    for name, term in method.step(single).items():
        assert torch.isfinite(term), name


def test_the_predictor_is_a_whole_network_on_the_same_device(method: Method, kind: str) -> None:
    training(method, kind)
    model = method.predictor("target")
    assert isinstance(model, Network)
    assert model.state_dict().keys() == tiny_network(kind).state_dict().keys()
    assert {p.device for p in model.parameters()} == {CPU}


def test_settings_have_a_sentence_and_a_sane_default(method: Method) -> None:
    from cosda.settings import check, settings_of

    for one in settings_of(type(method)).values():
        assert one.help
        assert check(one, one.default, "default") == one.default
