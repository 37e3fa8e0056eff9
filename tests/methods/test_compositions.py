"""CoSDA with the labels of NRC and AaD: identities, both variants against slow versions, and their settings."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from cosda import losses
from cosda.config.schema import Optimisation
from cosda.methods import METHODS, Method
from cosda.methods.base import Progress
from cosda.methods.composition import Composition
from cosda.methods.cosda import CoSDA
from cosda.models.network import Network, same_weights
from cosda.models.statistics import statistics
from cosda.parts.bank import Bank
from cosda.parts.mixup import draw_mixing
from cosda.randomness import stream
from cosda.run.train import Training
from cosda.settings import settings_of
from cosda.types import Batch, Output
from tiny import tiny_loader, tiny_network

BASES = ("nrc", "aad")
# A teacher that is always the student's copy, no mixing, no information: what is left is the other method.
OFF: dict[str, Any] = {
    "learn_by": "attraction",
    "meeting": "step",
    "momentum": (0.0, 0.0),
    "mixup_beta": 0.0,
    "information": 0.0,
}


def composition(base: str, variant: str = "paper", **settings: Any) -> Composition:
    cls = METHODS[f"cosda+{base}"]
    made = cls(**{**cls.variants[variant], **settings})
    assert isinstance(made, Composition)
    return made


def job(method: Method, kind: str = "batch_norm", epochs: int = 3, student_seed: int = 0) -> Training:
    how = Optimisation(epochs=epochs, batch_size=8, lr=0.05, lr_end=0.01)
    return Training(method, tiny_network(kind, student_seed), tiny_loader(kind, count=20), how, 0, 1, "target")


def ready(method: Composition, epoch: int = 0, epochs: int = 4) -> tuple[Composition, Batch]:
    loader = tiny_loader(count=20)
    method.setup(tiny_network(), loader)
    method.begin_epoch(Progress(1, epoch, epochs, stream(0, "epoch")))
    return method, next(iter(loader.epoch(1, 0)))


def in_training(network: Network, images: Tensor) -> Output:
    """What a copy of the network says in training mode."""
    with torch.no_grad():
        return copy.deepcopy(network).train()(images)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["batch_norm", "plain", "features"])
@pytest.mark.parametrize("bank", ["epoch", "persistent", "epoch-static"])
@pytest.mark.parametrize("base", BASES)
def test_with_everything_off_it_is_the_other_method_bit_for_bit(base: str, bank: str, kind: str) -> None:
    plain, composed = METHODS[base](bank=bank), composition(base, bank=bank, **OFF)  # type: ignore[call-arg]
    terms: list[list[dict[str, float]]] = []
    students = []
    for method in (plain, composed):
        work = job(method, kind)
        seen: list[dict[str, float]] = []
        work.run(lambda facts, seen=seen: seen.append(facts.terms))  # type: ignore[misc]
        terms.append(seen)
        students.append(work.student)
    assert terms[0] == terms[1]
    assert same_weights(*students)
    ours, theirs = composed.predictor(), students[0]
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)
    for mine, other in zip(statistics(ours), statistics(theirs), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("base", BASES)
def test_settings_are_those_of_both_without_duplicates(base: str) -> None:
    both = {**settings_of(CoSDA), **settings_of(METHODS[base])}
    mine = settings_of(METHODS[f"cosda+{base}"])
    assert set(mine) == set(both) | {"looks", "learn_by"}
    for key in set(mine) - {"looks", "learn_by", "bank"}:
        assert mine[key].default == both[key].default, key
    assert mine["bank"].default == "epoch-static"


@pytest.mark.parametrize("base", BASES)
def test_the_paper_learns_refined_labels_by_consistency(base: str) -> None:
    """§5.2: r from the teacher's bank, q = softmax(log r / τ), then CoSDA's mixing, consistency and information."""
    method, batch = ready(composition(base, temperature=0.5, information=0.7))
    bank = Bank.build(method.pair.teacher, method.loader)  # eval mode, the teacher's statistics
    refined = []

    def near(j: int, count: int) -> list[int]:
        similarity = (bank.features @ bank.features[j]).tolist()
        return sorted((k for k in range(20) if k != j), key=lambda k: -similarity[k])[:count]

    for i in batch.index.tolist():
        total, weight = torch.zeros(3), 0.0
        if base == "aad":
            for j in near(i, 3):
                total, weight = total + bank.scores[j], weight + 1
        else:
            for j in near(i, 4):
                affinity = 1.0 if i in near(j, 3) else 0.1
                total, weight = total + affinity * bank.scores[j], weight + affinity
                for k in near(j, 3):
                    total, weight = total + 0.1 * bank.scores[k], weight + 0.1
        refined.append(total / weight)
    powers = torch.stack(refined) ** (1 / 0.5)
    labels = powers / powers.sum(1, keepdim=True)
    share, partner = draw_mixing(8, 2.0, False, stream(0, "epoch"), torch.device("cpu"))
    mixed = share * labels + (1 - share) * labels[partner]
    logits = in_training(method.student, share * batch.images + (1 - share) * batch.images[partner]).logits
    expected = {
        "consistency": -(mixed * logits.log_softmax(1)).sum(1).mean().item(),
        "information": 0.7 * losses.negative_information(logits).item(),
    }
    if base == "aad":
        expected["dispersion"] = 0.4 * losses.dispersion(logits).item()
    terms = {name: term.item() for name, term in method.step(batch).items()}
    assert terms == {name: pytest.approx(value, rel=1e-3) for name, value in expected.items()}


@pytest.mark.parametrize("base", BASES)
def test_the_paper_needs_one_pass_a_step_and_none_of_the_teacher(base: str) -> None:
    method, batch = ready(composition(base))
    calls: list[str] = []
    method.student.register_forward_hook(lambda *_: calls.append("student"))
    method.pair.teacher.register_forward_hook(lambda *_: calls.append("teacher"))
    method.step(batch)
    assert calls == ["student"]
    method.begin_epoch(Progress(1, 1, 4, stream(0)))
    assert calls == ["student", *["teacher"] * 3], "the teacher fills the bank"
    assert not method.pair.teacher.training


@pytest.mark.parametrize("base", BASES)
def test_the_authors_code_pays_the_other_methods_losses_on_the_mixed_batch(base: str) -> None:
    """§5.1: the student's clean pass refreshes the bank by 0.8 / 0.2, then the mixed batch pays."""
    method, batch = ready(composition(base, "authors"))
    bank = Bank.build(method.student, method.loader)
    clean = in_training(method.student, batch.images)
    rows = 0.8 * bank.features[batch.index] + 0.2 * torch.nn.functional.normalize(clean.features)
    bank.update(batch.index, clean, 0.8, unit=False)
    torch.testing.assert_close(bank.features[batch.index], rows)
    share, partner = draw_mixing(8, 0.1, True, stream(0, "epoch"), torch.device("cpu"))
    assert 0.5 <= share < 1
    logits = in_training(method.student, share * batch.images + (1 - share) * batch.images[partner]).logits
    p = logits.softmax(1)
    scores = bank.scores
    if base == "aad":
        near = bank.neighbours(batch.index, 3)
        labels = scores[near].mean(1)
        labels = share * labels + (1 - share) * labels[partner]
        expected = {
            "attraction": -3 * (labels * p).sum(1).mean().item(),
            "dispersion": 0.4 * losses.dispersion(logits).item(),
        }
    else:
        near = bank.neighbours(batch.index, 4)
        extended = bank.neighbours(near, 3)
        affinity = torch.tensor(
            [[1.0 if i in row else 0.1 for row in rows] for i, rows in zip(batch.index, extended, strict=True)]
        )
        total = affinity.sum(1)
        first = ((affinity[:, :, None] * scores[near]).sum(1) / total[:, None] / 0.01).softmax(1)
        second = (scores[extended].mean((1, 2)) / 0.01).softmax(1)
        first, second = (share * x + (1 - share) * x[partner] for x in (first, second))
        mean = p.mean(0)
        pull = -(total * (first * p).sum(1)).mean() - 0.1 * 4 * 3 * (second * p).sum(1).mean()
        expected = {"attraction": pull.item(), "diversity": (mean * (mean + 1e-5).log()).sum().item()}
    terms = {name: term.item() for name, term in method.step(batch).items()}
    assert terms == {name: pytest.approx(value, rel=1e-4) for name, value in expected.items()}
    assert method.base.memory is not None
    torch.testing.assert_close(method.base.memory.features, bank.features)
    assert bool((bank.features[batch.index].norm(dim=1) < 0.9999).any()), "their averaged rows are shorter than 1"


@pytest.mark.parametrize("base", BASES)
def test_the_authors_variant_is_what_the_docs_say(base: str) -> None:
    method = composition(base, "authors")
    assert method.looks == "student"
    assert method.learn_by == "attraction"
    assert (method.momentum, method.statistics_momentum) == ((0.8, 0.95), (0.95, 0.99))
    assert (method.mixup_beta, method.fold, method.information, method.restart) == (0.1, True, 0.0, True)
    own = method.settings()
    assert (own["bank"], own["bank_keep"], own["bank_unit"]) == ("epoch", 0.8, False)
    if base == "nrc":
        assert (own["label_temperature"], own["neighbours_later"], own["extended_later"]) == (0.01, 5, 4)


def test_the_gate_keeps_confident_neighbourhoods() -> None:
    method, batch = ready(composition("nrc", gate=(1.0, 1.0)))
    terms = method.step(batch)
    assert terms["consistency"].item() == 0
    assert terms["information"].item() != 0


@pytest.mark.parametrize("variant", ["paper", "authors"])
@pytest.mark.parametrize("bank", ["epoch", "persistent"])
@pytest.mark.parametrize("base", BASES)
def test_a_stop_changes_nothing(base: str, bank: str, variant: str) -> None:
    whole = job(composition(base, variant, bank=bank))
    states: list[dict[str, Any]] = []
    whole.run(lambda facts: states.append(copy.deepcopy(whole.state_dict())))
    assert bool(states[0]["method"]["base"]) == (bank == "persistent")
    resumed = job(composition(base, variant, bank=bank), student_seed=5)
    resumed.load_state_dict(states[0])
    resumed.run(lambda facts: None)
    assert same_weights(whole.student, resumed.student)
    assert same_weights(whole.method.predictor(), resumed.method.predictor())
