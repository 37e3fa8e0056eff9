"""NRC against slow loops written from its formulas, and the traps of other code."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch.nn import functional as F

from cosda.config.schema import Optimisation
from cosda.methods.base import Progress
from cosda.methods.nrc import NRC
from cosda.models.network import same_weights
from cosda.parts.bank import Bank
from cosda.randomness import stream
from cosda.run.train import Training
from cosda.types import Batch, Output
from tiny import tiny_loader, tiny_network

# Six points on the circle. Those at 0° and 10° are each other's nearest; 24° has 10° as nearest, but not the reverse.
DEGREES = (0.0, 10.0, 24.0, 120.0, 131.0, 250.0)


def hand_made(**settings: object) -> tuple[NRC, Bank]:
    angles = torch.tensor(DEGREES).deg2rad()
    scores = torch.tensor(
        [[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.6, 0.1, 0.3], [0.1, 0.8, 0.1], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]]
    )
    method = NRC(**settings)  # type: ignore[arg-type]
    method.setup(tiny_network(), tiny_loader())
    method.progress = Progress(1, 0, 4, stream(0))
    method.memory = Bank(torch.stack([angles.cos(), angles.sin()], 1), scores)
    return method, method.memory


def batch_of(*index: int) -> Batch:
    return Batch((torch.zeros(len(index), 1),), torch.tensor(index))


def seen_again(bank: Bank, batch: Batch) -> Output:
    """Looking changes nothing: what the bank holds."""
    return bank.recall(batch.index)


def slow_neighbours(bank: Bank, i: int, count: int) -> list[int]:
    similarity = (bank.features @ bank.features[i]).tolist()
    return sorted((j for j in range(len(similarity)) if j != i), key=lambda j: -similarity[j])[:count]


def slow_loss(bank: Bank, index: list[int], p: list[list[float]], near: int, far: int, r: float) -> tuple[float, float]:
    """§8: L = -(1/B) ΣΣ A_ij⟨S_j,p_i⟩ - (1/B) ΣΣΣ r⟨S_l,p_i⟩ and Σ_c p̄_c log(p̄_c + 1e-5)."""
    scores, attraction = bank.scores.double().tolist(), 0.0
    for i, row in zip(index, p, strict=True):
        for j in slow_neighbours(bank, i, near):
            of_j = slow_neighbours(bank, j, far)
            affinity = 1.0 if i in of_j else r
            attraction -= affinity * sum(s * x for s, x in zip(scores[j], row, strict=True)) / len(index)
            for k in of_j:
                attraction -= r * sum(s * x for s, x in zip(scores[k], row, strict=True)) / len(index)
    mean = [sum(row[c] for row in p) / len(p) for c in range(3)]
    return attraction, sum(m * math.log(m + 1e-5) for m in mean)


def test_neighbours_and_reciprocal_weights_by_hand() -> None:
    """K=2, M=1: the nearest of 0 is 1 and of 1 is 0; of 2 it is 1, which prefers 0; 3 and 4 have each other."""
    method, bank = hand_made(neighbours=2, extended=1)
    assert bank.neighbours(torch.arange(6), 1)[:, 0].tolist() == [1, 0, 1, 4, 3, 0]
    batch = batch_of(0, 2, 3)
    target = method.label(batch, seen_again(bank, batch))
    # A: 0 -> (1 mutual, 2 not), 2 -> (1, 0: neither has 2), 3 -> (4 mutual, 2 not); second weight r·K·M = 0.2
    torch.testing.assert_close(target.weights, torch.tensor([[1.1, 0.2], [0.2, 0.2], [1.1, 0.2]]))
    torch.testing.assert_close(target.labels[0, 0], (bank.scores[1] + 0.1 * bank.scores[2]) / 1.1)
    torch.testing.assert_close(target.labels[0, 1], (bank.scores[0] + bank.scores[1]) / 2)


@pytest.mark.parametrize(("near", "far"), [(1, 1), (2, 3), (4, 3), (3, 2)])
def test_loss_equals_the_formula(near: int, far: int) -> None:
    method, bank = hand_made(neighbours=near, extended=far, one_sided=0.1)
    batch = batch_of(5, 0, 3, 2)
    logits = torch.randn(4, 3, generator=stream(1))
    target = method.label(batch, seen_again(bank, batch))
    terms = method.losses(Output(torch.zeros(4, 2), logits), target)
    expected = slow_loss(bank, batch.index.tolist(), logits.double().softmax(1).tolist(), near, far, 0.1)
    assert [term.item() for term in terms.values()] == pytest.approx(expected, rel=1e-5)
    assert list(terms) == ["attraction", "diversity"]


def test_the_gradient_is_that_of_the_originals_kl_div() -> None:
    method, bank = hand_made()
    batch = batch_of(0, 3, 5)
    target = method.label(batch, seen_again(bank, batch))
    ours = torch.randn(3, 3, generator=stream(1), requires_grad=True)
    theirs = ours.detach().clone().requires_grad_()
    method.losses(Output(ours, ours), target)["attraction"].backward()
    p = theirs.softmax(1)[:, None].expand_as(target.labels)
    (F.kl_div(p, target.labels, reduction="none").sum(2) * target.weights).sum(1).mean().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_whole_step_equals_the_formula_and_refreshes_the_bank_first() -> None:
    method, images = NRC(neighbours=3, extended=2), tiny_loader(count=16)
    method.setup(tiny_network(), images)
    method.begin_epoch(Progress(1, 0, 2, stream(0)))
    batch = next(iter(images.epoch(1, 0)))
    with torch.no_grad():
        output = copy.deepcopy(method.student)(batch.images)
    assert method.memory is not None
    before = method.memory.scores.clone()
    terms = method.step(batch)
    torch.testing.assert_close(method.memory.scores[batch.index], output.logits.softmax(1))
    torch.testing.assert_close(method.memory.features[batch.index], F.normalize(output.features))
    assert not torch.equal(before, method.memory.scores)
    p = output.logits.double().softmax(1).tolist()
    expected = slow_loss(method.memory, batch.index.tolist(), p, 3, 2, 0.1)
    assert [term.item() for term in terms.values()] == pytest.approx(expected, rel=1e-4)
    assert not method.memory.scores.requires_grad


def test_duplicates_do_not_make_a_image_its_own_neighbour() -> None:
    """Trap B25: of four equal images each has the other three, and the bank knows which is which."""
    method, bank = hand_made(neighbours=3, extended=3)
    bank.features[:4] = bank.features[0]
    batch = batch_of(0, 1, 2, 3)
    target = method.label(batch, seen_again(bank, batch))
    for i in range(4):
        others = [j for j in range(4) if j != i]
        torch.testing.assert_close(target.labels[i, 0], bank.scores[others].mean(0))
        assert target.weights[i, 0].item() == pytest.approx(3.0), "all are mutual"


def test_weights_may_be_made_equal_as_in_the_originals_visda_code() -> None:
    method, bank = hand_made(neighbours=2, extended=1, mutual=0.1)
    batch = batch_of(0, 2, 3)
    torch.testing.assert_close(method.label(batch, seen_again(bank, batch)).weights, torch.full((3, 2), 0.2))


def test_labels_may_be_sharpened() -> None:
    plain, bank = hand_made()
    batch = batch_of(0, 4)
    labels = plain.label(batch, seen_again(bank, batch)).labels
    sharp, bank = hand_made(label_temperature=0.1)
    target = sharp.label(batch, seen_again(bank, batch))
    torch.testing.assert_close(target.labels, (labels / 0.1).softmax(2))


def test_neighbours_change_after_half_of_the_epochs_and_begin_anew_with_each_target() -> None:
    """Trap B13: settings are never written to."""
    method, bank = hand_made(neighbours=1, extended=1, neighbours_later=3, extended_later=2)
    settings = method.settings()
    batch = batch_of(0)

    def count(epoch: int, epochs: int) -> float:
        method.progress = Progress(1, epoch, epochs, stream(0))
        return round(method.label(batch, seen_again(bank, batch)).weights[0, 1].item() / 0.1, 3)

    assert [count(epoch, 4) for epoch in range(4)] == [1, 1, 1, 6]  # e > E/2, as in the authors' code
    assert count(0, 4) == 1
    assert method.settings() == settings


def test_more_neighbours_than_images_are_all_images() -> None:
    method, bank = hand_made(neighbours=50, extended=50)
    batch = batch_of(1)
    target = method.label(batch, seen_again(bank, batch))
    torch.testing.assert_close(target.weights, torch.tensor([[5.0, 0.1 * 25]]))


def test_a_single_image_learns_nothing_from_neighbours() -> None:
    method, bank = hand_made()
    method.memory = Bank(bank.features[:1], bank.scores[:1])
    target = method.label(batch_of(0), method.memory.recall(torch.tensor([0])))
    assert target.weights.tolist() == [[0, 0]]
    assert all(torch.isfinite(t) for t in method.losses(Output(torch.zeros(1, 2), torch.zeros(1, 3)), target).values())


def job(method: NRC, epochs: int = 3, student_seed: int = 0) -> Training:
    how = Optimisation(epochs=epochs, batch_size=8, lr=0.05, lr_end=0.01)
    return Training(method, tiny_network(seed=student_seed), tiny_loader(count=20), how, 0, 1, "target")


def passes(bank: str) -> int:
    method = NRC(bank=bank)  # type: ignore[arg-type]
    work = job(method)
    calls: list[int] = []
    work.student.register_forward_hook(lambda *_: calls.append(1))
    work.run(lambda facts: None)
    return len(calls)


def test_a_bank_costs_a_pass_each_epoch_or_once() -> None:
    assert passes("epoch") == 3 * (3 + 3)
    assert passes("epoch-static") == 3 * (3 + 3)
    assert passes("persistent") == 3 + 3 * 3


@pytest.mark.parametrize("keep", [0.0, 0.8])
@pytest.mark.parametrize("precision", ["float32", "half"])
def test_a_persistent_bank_survives_a_stop(keep: float, precision: str) -> None:
    options = {"bank": "persistent", "bank_keep": keep, "bank_precision": precision}
    whole = job(NRC(**options))
    states: list[dict[str, object]] = []
    whole.run(lambda facts: states.append(copy.deepcopy(whole.state_dict())))
    resumed = job(NRC(**options), student_seed=5)
    resumed.load_state_dict(states[0])
    assert resumed.method.memory.scores.dtype == (torch.half if precision == "half" else torch.float32)
    resumed.run(lambda facts: None)
    assert same_weights(whole.student, resumed.student)
    fresh = job(NRC(**{**options, "bank": "epoch"}))
    fresh.run(lambda facts: None)
    assert not same_weights(whole.student, fresh.student)


def test_a_new_target_has_a_new_bank() -> None:
    method = NRC(bank="persistent")
    job(method, epochs=1).run(lambda facts: None)
    old = method.memory
    job(method, epochs=1).run(lambda facts: None)
    assert method.memory is not old


def test_a_static_bank_stays_within_the_epoch() -> None:
    method, bank = hand_made(bank="epoch-static")
    before = bank.scores.clone()
    method.label(batch_of(0, 1), Output(torch.ones(2, 2), torch.zeros(2, 3)))
    assert torch.equal(bank.scores, before)
