"""AaD against slow loops written from its formulas."""

from __future__ import annotations

import copy

import pytest
import torch

from cosda import losses
from cosda.config.schema import Optimisation
from cosda.methods.aad import AaD
from cosda.methods.base import Progress
from cosda.models.network import same_weights
from cosda.randomness import stream
from cosda.run.train import Training
from cosda.types import Batch
from tiny import tiny_loader, tiny_network


def ready(method: AaD, epoch: int = 0, epochs: int = 4) -> tuple[AaD, Batch]:
    loader = tiny_loader(count=16, batch_size=8)
    method.setup(tiny_network(), loader)
    method.begin_epoch(Progress(1, epoch, epochs, stream(0, "epoch")))
    return method, next(iter(loader.epoch(1, 0)))


def job(method: AaD, epochs: int = 3, student_seed: int = 0) -> Training:
    how = Optimisation(epochs=epochs, batch_size=8, lr=0.05, lr_end=0.01)
    return Training(method, tiny_network(seed=student_seed), tiny_loader(count=20), how, 0, 1, "target")


@pytest.mark.parametrize("bank", ["epoch", "persistent", "epoch-static"])
def test_a_step_equals_the_formula(bank: str) -> None:
    """§9: L = -(1/B) Σ_i Σ_j ⟨S_j, p_i⟩ + λ (1/B) Σ_i Σ_{j≠i} ⟨p_i, p_j⟩."""
    method, batch = ready(AaD(neighbours=3, bank=bank, dispersion=0.5, decay=0.9), epoch=2)  # type: ignore[arg-type]
    assert method.memory is not None
    stored = copy.deepcopy(method.memory)
    with torch.no_grad():
        output = copy.deepcopy(method.student)(batch.images)
    if bank != "epoch-static":  # trap B12: the original refreshes the batch's rows before it searches
        stored.update(batch.index, output)
    p, scores = output.logits.double().softmax(1).tolist(), stored.scores.double().tolist()
    attraction = dispersion = 0.0
    for row, i in enumerate(batch.index.tolist()):
        similarity = (stored.features @ stored.features[i]).tolist()
        near = sorted((j for j in range(16) if j != i), key=lambda j: -similarity[j])[:3]
        attraction -= sum(sum(s * x for s, x in zip(scores[j], p[row], strict=True)) for j in near) / 8
        others = [other for other in range(8) if other != row]
        dispersion += sum(sum(a * b for a, b in zip(p[row], p[other], strict=True)) for other in others) / 8
    terms = {name: term.item() for name, term in method.step(batch).items()}
    assert terms == {
        "attraction": pytest.approx(attraction, rel=1e-4),
        "dispersion": pytest.approx(0.5 * 0.9**2 * dispersion, rel=1e-4),
    }
    torch.testing.assert_close(method.memory.scores, stored.scores)


def test_dispersion_leaves_the_diagonal_out_and_grows_with_the_batch() -> None:
    same = torch.tensor([[2.0, 0.0, 1.0]])
    one = float(same.softmax(1).square().sum())
    for size in (1, 2, 5):
        assert losses.dispersion(same.repeat(size, 1)).item() == pytest.approx((size - 1) * one, abs=1e-6)


def test_dispersion_has_gradient_through_both_factors() -> None:
    logits = torch.randn(6, 3, generator=stream(0), dtype=torch.float64, requires_grad=True)
    losses.dispersion(logits).backward()
    twin = logits.detach().clone().requires_grad_()
    p = twin.softmax(1)
    ((p @ p.T) * (1 - torch.eye(6))).sum(1).mean().backward()
    torch.testing.assert_close(logits.grad, twin.grad)
    halved = logits.detach().clone().requires_grad_()
    p = halved.softmax(1)
    ((p @ p.detach().T) * (1 - torch.eye(6))).sum(1).mean().backward()
    torch.testing.assert_close(logits.grad, 2 * halved.grad)


def test_without_dispersion_there_is_one_term() -> None:
    method, batch = ready(AaD(dispersion=0))
    assert set(method.step(batch)) == {"attraction"}


def test_the_dispersion_falls_from_epoch_to_epoch_and_begins_anew() -> None:
    method = AaD()
    strengths = [ready(method, epoch)[0].strength for epoch in (0, 1, 3, 0)]
    assert strengths == pytest.approx([0.4, 0.4 * 0.96, 0.4 * 0.96**3, 0.4])


def test_the_originals_dispersion_falls_at_every_step() -> None:
    """α(1 + 10t/T)^-β with t counted from 0 over all steps of all epochs."""
    method = AaD(dispersion=1, decay_power=5)
    strengths: list[float] = []
    for epoch in range(3):
        ready(method, epoch, epochs=3)
        for batch in method.loader.epoch(1, epoch):  # type: ignore[attr-defined]
            method.step(batch)
            strengths.append(method.strength)
    assert strengths == pytest.approx([(1 + 10 * t / 6) ** -5 for t in range(6)])


def test_neighbours_change_after_half_of_the_epochs() -> None:
    method = AaD(neighbours=3, neighbours_later=2)
    for epoch, count in ((0, 3), (2, 3), (3, 2), (0, 3)):
        method, batch = ready(method, epoch)
        with torch.no_grad():
            target = method.label(batch, method.student(batch.images))
        assert target.weights.unique().tolist() == [count]
    assert (method.neighbours, method.neighbours_later) == (3, 2)


def test_a_persistent_bank_survives_a_stop() -> None:
    whole = job(AaD(bank="persistent", decay_power=1.0))
    states: list[dict[str, object]] = []
    whole.run(lambda facts: states.append(copy.deepcopy(whole.state_dict())))
    resumed = job(AaD(bank="persistent", decay_power=1.0), student_seed=5)
    resumed.load_state_dict(states[1])
    resumed.run(lambda facts: None)
    assert same_weights(whole.student, resumed.student)


def test_an_epochs_bank_is_not_stored() -> None:
    method, _ = ready(AaD())
    assert method.state_dict() == {}


def test_the_authors_code_does_not_refresh_the_bank_within_an_epoch() -> None:
    assert AaD.variants["paper"] == {}
    assert AaD(**AaD.variants["authors"]).bank == "epoch-static"
