"""SHOT against slow versions of its formulas, and the traps of other code."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from cosda.config.schema import Optimisation
from cosda.losses import information_maximisation, negative_information
from cosda.methods.base import Progress
from cosda.methods.shot import SHOT
from cosda.models.network import same_weights
from cosda.parts.prototypes import label_images
from cosda.randomness import stream
from cosda.run.train import Training
from cosda.types import Batch
from tiny import tiny_loader, tiny_network


def ready(method: SHOT, kind: str = "batch_norm", epoch: int = 0) -> tuple[SHOT, Batch]:
    loader = tiny_loader(kind, count=16, batch_size=8)
    method.setup(tiny_network(kind), loader)
    method.begin_epoch(Progress(1, epoch, 4, stream(0, "epoch")))
    return method, next(iter(loader.epoch(1, 0, method.views)))


def job(method: SHOT, kind: str = "batch_norm", epochs: int = 2) -> Training:
    how = Optimisation(epochs=epochs, batch_size=8, lr=0.05, lr_end=0.01)
    return Training(method, tiny_network(kind), tiny_loader(kind, count=20, batch_size=8), how, 0, 1, "target")


def slow_softmax(row: list[float]) -> list[float]:
    powers = [math.exp(v - max(row)) for v in row]
    return [p / sum(powers) for p in powers]


def slow_information(rows: list[list[float]]) -> float:
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    entropy = -sum(p * math.log(p + 1e-5) for row in rows for p in row) / len(rows)
    return entropy + sum(m * math.log(m + 1e-5) for m in mean)


def test_information_maximisation_is_the_formula() -> None:
    logits = 2 * torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    want = slow_information([slow_softmax(row) for row in logits.tolist()])
    assert float(information_maximisation(logits)) == pytest.approx(want, rel=1e-12)
    assert float(negative_information(logits)) == pytest.approx(want, abs=1e-4)


@pytest.mark.parametrize("kind", ["batch_norm", "plain", "features"])
def test_step_equals_the_loss_written_as_loops(kind: str) -> None:
    method, batch = ready(SHOT(label_weight=0.4, information=0.7), kind)
    twin = copy.deepcopy(method.student).train()
    labels = label_images(twin, method.loader).tolist()
    with torch.no_grad():
        rows = [slow_softmax(row) for row in twin(batch.images).logits.double().tolist()]
    entropy = -sum(math.log(row[labels[i]]) for row, i in zip(rows, batch.index.tolist(), strict=True)) / len(rows)
    terms = {name: term.item() for name, term in method.step(batch).items()}
    assert terms == {
        "labels": pytest.approx(0.4 * entropy, rel=1e-4),
        "information": pytest.approx(0.7 * slow_information(rows), rel=1e-3),
    }


def test_each_image_learns_the_label_of_its_index() -> None:
    """Trap B1 from end to end: batches come shuffled, labels do not care."""
    method, _ = ready(SHOT())
    assert method.labels is not None
    by_index = label_images(method.student, method.loader)
    orders = []
    for epoch in (0, 1):
        for batch in method.loader.epoch(1, epoch):  # type: ignore[attr-defined]
            orders += batch.index.tolist()
            assert torch.equal(method.labels[batch.index], by_index[batch.index])
    assert orders != sorted(orders)


@pytest.mark.parametrize("kind", ["batch_norm", "plain"])
def test_the_classifier_keeps_its_bits_and_its_mode(kind: str) -> None:
    method = SHOT()
    work = job(method, kind)
    before = copy.deepcopy(work.student)
    work.run(lambda facts: None)
    assert same_weights(work.student.classifier, before.classifier)
    assert not same_weights(work.student.encoder, before.encoder)
    assert not same_weights(work.student.bottleneck, before.bottleneck)
    assert not work.student.classifier.training
    assert work.student.encoder.training
    assert all(p.requires_grad for p in work.student.parameters()), "the next method may train it"
    assert all(p.grad is None for p in work.student.classifier.parameters())


def test_the_encoder_learns_at_a_tenth_of_the_bottlenecks_rate() -> None:
    work = job(SHOT())
    assert {group.name: group.rate for group in work.groups} == {"encoder": 0.1, "bottleneck": 1.0}


def test_the_first_epoch_may_go_without_labels() -> None:
    for epoch, names in ((0, {"information"}), (1, {"labels", "information"})):
        method, batch = ready(SHOT(first_epoch_labels=False), epoch=epoch)
        assert set(method.step(batch)) == names
    method, batch = ready(SHOT(), epoch=0)
    assert set(method.step(batch)) == {"labels", "information"}


def test_labels_are_made_anew_in_each_epoch_and_not_where_they_are_not_learnt() -> None:
    method, batch = ready(SHOT())
    first = method.labels
    with torch.no_grad():
        for parameter in method.student.bottleneck.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    method.begin_epoch(Progress(1, 1, 4, stream(0, "epoch")))
    assert first is not None
    assert method.labels is not None
    assert not torch.equal(first, method.labels)
    for off in (SHOT(label_weight=0), SHOT(first_epoch_labels=False)):
        calls: list[int] = []
        off.setup(method.student, method.loader)
        hook = method.student.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        off.begin_epoch(Progress(1, 0, 4, stream(0, "epoch")))
        assert not calls
        off.step(batch)
        assert len(calls) == 1
        hook.remove()


def test_a_step_costs_one_pass() -> None:
    method, batch = ready(SHOT())
    calls: list[int] = []
    method.student.register_forward_hook(lambda *_: calls.append(1))
    method.step(batch)
    assert len(calls) == 1


def test_terms_of_weight_zero_do_not_exist() -> None:
    method, batch = ready(SHOT(information=0))
    assert set(method.step(batch)) == {"labels"}


def test_the_view_of_the_labels_is_a_setting() -> None:
    for view in ("test", "weak"):
        method, _ = ready(SHOT(label_view=view))
        assert method.labels is not None
        assert torch.equal(method.labels, label_images(method.student, method.loader, view=view))
