"""CoSDA against slow versions of its formulas, its identities, and the situations that broke other code."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

from cosda.config.schema import Optimisation
from cosda.methods.base import Progress
from cosda.methods.cosda import CoSDA
from cosda.models.network import Network, same_weights
from cosda.models.statistics import statistics
from cosda.parts.mixup import draw_mixing
from cosda.parts.schedule import cosine
from cosda.randomness import stream
from cosda.run.train import Training
from cosda.types import Batch
from tiny import tiny_loader, tiny_network


def ready(method: CoSDA, kind: str = "batch_norm", epoch: int = 0, epochs: int = 4) -> tuple[CoSDA, Batch]:
    loader = tiny_loader(kind, count=16, batch_size=8)
    method.setup(tiny_network(kind), loader)
    method.begin_epoch(Progress(1, epoch, epochs, stream(0, "epoch")))
    return method, next(iter(loader.epoch(1, 0)))


def job(method: CoSDA, kind: str = "batch_norm", epochs: int = 2) -> Training:
    how = Optimisation(epochs=epochs, batch_size=8, lr=0.05, lr_end=0.01)
    return Training(method, tiny_network(kind), tiny_loader(kind, count=20, batch_size=8), how, 0, 1, "target")


def slow_softmax(row: list[float]) -> list[float]:
    top = max(row)
    powers = [math.exp(v - top) for v in row]
    return [p / sum(powers) for p in powers]


def batch_outputs(network: Network, images: Tensor) -> list[list[float]]:
    """Logits with the batch's own BatchNorm statistics, on a copy, so that nothing is disturbed."""
    twin = copy.deepcopy(network).train()
    with torch.no_grad():
        return twin(images).logits.double().tolist()


@pytest.mark.parametrize("fold", [False, True])
def test_step_equals_algorithm_1_written_as_loops(fold: bool) -> None:
    method, batch = ready(CoSDA(temperature=0.5, information=0.7, fold=fold))
    share, partner = draw_mixing(len(batch), 2.0, fold, stream(0, "epoch"), torch.device("cpu"))
    partner = partner.tolist()
    labels = [slow_softmax([z / 0.5 for z in row]) for row in batch_outputs(method.pair.teacher, batch.images)]
    mixed_images = torch.stack(
        [share * x + (1 - share) * batch.images[j] for x, j in zip(batch.images, partner, strict=True)]
    )
    predicted = [slow_softmax(row) for row in batch_outputs(method.student, mixed_images)]

    size, classes = len(labels), len(labels[0])
    consistency = 0.0
    for i in range(size):
        mixed = [share * a + (1 - share) * b for a, b in zip(labels[i], labels[partner[i]], strict=True)]
        consistency -= sum(q * math.log(p) for q, p in zip(mixed, predicted[i], strict=True)) / size
    mean = [sum(row[c] for row in predicted) / size for c in range(classes)]
    kl = sum(sum(p * (math.log(p) - math.log(mean[c] + 1e-5)) for c, p in enumerate(row)) for row in predicted) / size

    terms = {name: term.item() for name, term in method.step(batch).items()}
    assert terms == {
        "consistency": pytest.approx(consistency, rel=1e-4),
        "information": pytest.approx(-0.7 * kl, rel=1e-3),
    }


def test_information_has_the_sign_that_makes_predictions_confident_and_diverse() -> None:
    method, batch = ready(CoSDA(consistency=0, mixup_beta=0))

    def entropies() -> tuple[float, float]:
        p = torch.tensor(batch_outputs(method.student, batch.images)).softmax(1)
        mean = p.mean(0)
        return float(-(p * p.log()).sum(1).mean()), float(-(mean * mean.log()).sum())

    own_before, mean_before = entropies()
    for _ in range(20):
        method.student.zero_grad()
        method.step(batch)["information"].backward()
        with torch.no_grad():
            for parameter in method.student.parameters():
                parameter -= 0.1 * parameter.grad
    own, mean = entropies()
    assert own < own_before
    assert mean > 0.9, "the opposite sign makes all predictions one class or all the same"
    assert mean - own > mean_before - own_before + 0.3


def test_clean_information_takes_a_second_pass_and_mixed_does_not() -> None:
    for where, passes in (("mixed", 1), ("clean", 2)):
        method, batch = ready(CoSDA(information_on=where))
        calls: list[Tensor] = []
        method.student.register_forward_hook(lambda module, inputs, output, calls=calls: calls.append(inputs[0]))
        method.step(batch)
        assert len(calls) == passes
    assert torch.equal(calls[1], batch.images)


def test_clean_images_pass_also_at_weight_zero_because_batch_norm_sees_them() -> None:
    """On Office-31 the authors set α = 0, and their student still passes the clean batch."""
    for where, passes in (("mixed", 1), ("clean", 2)):
        method, batch = ready(CoSDA(information=0, information_on=where))
        calls: list[Tensor] = []
        method.student.register_forward_hook(lambda module, inputs, output, calls=calls: calls.append(inputs[0]))
        assert set(method.step(batch)) == {"consistency"}
        assert len(calls) == passes
    weighted, batch = ready(CoSDA(information=0.5, information_on="clean"))
    weighted.step(batch)
    for own, other in zip(statistics(method.student), statistics(weighted.student), strict=True):
        assert torch.equal(own, other)


def test_no_mixing_at_beta_zero() -> None:
    method, batch = ready(CoSDA(mixup_beta=0))
    seen: list[Tensor] = []
    method.student.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    method.step(batch)
    assert torch.equal(seen[0], batch.images)


def test_a_gate_of_zero_keeps_all_and_a_high_gate_keeps_the_confident() -> None:
    method, batch = ready(CoSDA())
    target = method.objective.label(batch, method._look(batch))
    assert bool((target.weights == 1).all())
    confidence = torch.tensor(batch_outputs(method.pair.teacher, batch.images)).softmax(1).amax(1)
    gate = float(confidence.median())
    method, batch = ready(CoSDA(gate=(gate, gate)))
    target = method.objective.label(batch, method._look(batch))
    assert torch.equal(target.weights[:, 0] == 1, confidence > gate)


def test_a_batch_without_a_confident_image_learns_from_information_alone() -> None:
    method, batch = ready(CoSDA(gate=(1.0, 1.0)))
    terms = method.step(batch)
    assert terms["consistency"].item() == 0
    sum(terms.values()).backward()
    gradients = [p.grad for p in method.student.parameters()]
    assert all(torch.isfinite(g).all() for g in gradients)
    assert any(bool((g != 0).any()) for g in gradients)


def test_the_gate_follows_its_schedule() -> None:
    for epoch in (0, 2, 3):
        method, _ = ready(CoSDA(gate=(0.5, 0.7)), epoch=epoch)
        assert method.objective.threshold == pytest.approx(cosine(0.5, 0.7, epoch, 4))


def test_meeting_merges_weights_and_statistics_by_hand() -> None:
    method = CoSDA(momentum=(0.9, 0.9), statistics_momentum=(0.6, 0.6))
    work = job(method, epochs=1)
    incoming = copy.deepcopy(work.student)
    work.run(lambda facts: None)
    teacher, student = dict(method.pair.teacher.named_parameters()), dict(work.student.named_parameters())
    for name, old in incoming.named_parameters():
        torch.testing.assert_close(teacher[name], 0.9 * old + 0.1 * student[name])
    for merged, old, new in zip(
        statistics(method.pair.teacher), statistics(incoming), statistics(work.student), strict=True
    ):
        torch.testing.assert_close(merged, 0.6 * old + 0.4 * new)
        assert not torch.equal(old, new)


def test_statistics_follow_the_weights_momentum_unless_they_have_their_own() -> None:
    same, given = CoSDA(momentum=(0.8, 0.8)), CoSDA(momentum=(0.8, 0.8), statistics_momentum=(0.8, 0.8))
    for method in (same, given):
        job(method).run(lambda facts: None)
    assert same_weights(same.pair.teacher, given.pair.teacher)


def test_the_student_goes_on_in_algorithm_1_and_restarts_in_the_authors_code() -> None:
    for restart in (False, True):
        method = CoSDA(restart=restart)
        work = job(method, epochs=1)
        work.run(lambda facts: None)
        student, teacher = work.student, method.pair.teacher
        equal = all(torch.equal(a, b) for a, b in zip(student.parameters(), teacher.parameters(), strict=True))
        assert equal == restart
        assert not all(torch.equal(a, b) for a, b in zip(statistics(student), statistics(teacher), strict=True))


def test_the_teacher_moves_only_at_the_meeting() -> None:
    method = CoSDA()
    work = job(method, epochs=1)
    incoming = copy.deepcopy(method.pair.teacher)
    method.begin_epoch(Progress(1, 0, 1, stream(0)))
    for batch in work.loader.epoch(1, 0):
        work._update(method.step(batch))
        assert same_weights(incoming, method.pair.teacher)
    method.end_epoch()
    assert not same_weights(incoming, method.pair.teacher)


def test_without_dual_speed_they_meet_at_every_step() -> None:
    method = CoSDA(meeting="step")
    work = job(method, epochs=1)
    incoming = copy.deepcopy(method.pair.teacher)
    method.begin_epoch(Progress(1, 0, 1, stream(0)))
    work._update(method.step(next(iter(work.loader.epoch(1, 0)))))
    assert not same_weights(incoming, method.pair.teacher)


def test_without_a_teacher_the_student_labels_its_own_images() -> None:
    method = CoSDA(meeting="step", momentum=(0, 0), statistics_momentum=(0, 0))
    work = job(method)
    work.run(lambda facts: None)
    ours, theirs = dict(work.student.named_parameters()), dict(method.pair.teacher.named_parameters())
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert all(
        torch.equal(a, b) for a, b in zip(statistics(work.student), statistics(method.pair.teacher), strict=True)
    )


def test_the_teacher_labels_with_batch_or_with_global_statistics() -> None:
    method, batch = ready(CoSDA())
    with torch.no_grad():
        by_batch = method._look(batch).logits
        expected = torch.tensor(batch_outputs(method.pair.teacher, batch.images))
        torch.testing.assert_close(by_batch, expected)
        method.teacher_statistics = "global"
        by_global = method._look(batch).logits
        expected = copy.deepcopy(method.pair.teacher).eval()(batch.images).logits
    torch.testing.assert_close(by_global, expected)
    assert not torch.allclose(by_batch, by_global)


def test_the_variants_differ_in_what_the_docs_say() -> None:
    assert CoSDA.variants["paper"] == {}
    default = CoSDA(**CoSDA.variants["default"])
    assert default == CoSDA(gate=(0.5, 0.7), statistics_momentum=(0.95, 0.99))
    assert next(iter(CoSDA.variants)) == "default"  # the first one is taken where nobody asks for another
    authors = CoSDA(**CoSDA.variants["authors"])
    assert authors.restart
    assert authors.fold
    assert authors.information_on == "clean"
    assert authors.gate == (0.5, 0.7)
    assert authors.statistics_momentum == (0.95, 0.99)
    method, batch = ready(authors)
    assert all(torch.isfinite(term) for term in method.step(batch).values())
