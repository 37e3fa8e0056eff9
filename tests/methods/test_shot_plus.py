"""SHOT++: the rotation task beside SHOT, its head through a chain and a resume, and MixMatch."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from cosda.config.schema import Optimisation
from cosda.errors import CosdaError
from cosda.methods import shot_plus
from cosda.methods.base import Method, Progress
from cosda.methods.shot import SHOT
from cosda.methods.shot_plus import SHOTPlus
from cosda.models.network import Network, same_weights
from cosda.models.statistics import statistics
from cosda.parts.mixmatch import UNKNOWN, confident_labels, guess, mix, renew
from cosda.parts.mixup import draw_mixing
from cosda.parts.rotation import draw_turns, rotate
from cosda.randomness import stream
from cosda.run.train import Training
from cosda.types import Batch
from tiny import CPU, tiny_loader, tiny_network


def ready(method: SHOTPlus, kind: str = "batch_norm", epoch: int = 0) -> tuple[SHOTPlus, Batch]:
    loader = tiny_loader(kind, count=16, batch_size=8)
    method.setup(tiny_network(kind), loader)
    method.begin_epoch(Progress(1, epoch, 4, stream(0, "epoch")))
    return method, next(iter(loader.epoch(1, 0, method.views)))


def job(method: Method, kind: str = "batch_norm", epochs: int = 2, student: Network | None = None) -> Training:
    how = Optimisation(epochs=epochs, batch_size=8, lr=0.05, lr_end=0.01)
    student = student or tiny_network(kind)
    return Training(method, student, tiny_loader(kind, count=20, batch_size=8), how, 0, 1, "target")


# --- The rotation task ------------------------------------------------------------------------------------------------


def test_step_is_that_of_shot_and_the_rotation_term() -> None:
    method, batch = ready(SHOTPlus(rotation=0.5))
    method.progress = Progress(1, 0, 4, stream(0, "step"))
    twin = copy.deepcopy(method.student)
    reference = SHOT()
    reference.student, reference.labels = copy.deepcopy(method.student), method.labels
    turns = draw_turns(len(batch), stream(0, "step"), CPU)
    assert method.head is not None
    with torch.no_grad():
        pair = torch.cat([twin(batch.images).features, twin(rotate(batch.images, turns)).features], 1)
        rows = method.head(pair).log_softmax(1)
    want = -0.5 * sum(float(rows[i, k]) for i, k in enumerate(turns.tolist())) / len(batch)
    terms, plain = method.step(batch), reference.step(batch)
    assert terms.keys() == {"labels", "information", "rotation"}
    assert terms["rotation"].item() == pytest.approx(want, rel=1e-4)
    assert torch.equal(terms["labels"], plain["labels"])
    assert torch.equal(terms["information"], plain["information"])


def test_no_gradient_reaches_the_upright_features(monkeypatch: pytest.MonkeyPatch) -> None:
    method, batch = ready(SHOTPlus())
    given: list[Tensor] = []
    real = shot_plus.rotation_loss

    def noted(head: Any, upright: Tensor, turned: Tensor, turns: Tensor) -> Tensor:
        given.extend([upright, turned])
        return real(head, upright, turned, turns)

    monkeypatch.setattr(shot_plus, "rotation_loss", noted)
    method.step(batch)
    assert [one.requires_grad for one in given] == [False, True]


def test_a_step_costs_two_passes() -> None:
    method, batch = ready(SHOTPlus())
    calls: list[int] = []
    method.student.register_forward_hook(lambda *_: calls.append(1))
    method.step(batch)
    assert len(calls) == 2


def test_the_head_is_trained_before_and_goes_on_learning() -> None:
    method = SHOTPlus(rotation_epochs=2)
    work = job(method, epochs=1)
    assert method.head is not None
    assert {group.name: group.rate for group in work.groups} == {"encoder": 0.1, "bottleneck": 1.0, "rotation": 1.0}
    new = copy.deepcopy(method.head)
    method.begin_epoch(Progress(1, 0, 1, stream(0, "epoch")))
    made_ready = copy.deepcopy(method.head)
    assert not same_weights(new, made_ready)
    work.run(lambda facts: None)
    assert not same_weights(made_ready, method.head)
    assert all(p.requires_grad for p in work.student.parameters())


def test_the_classifier_keeps_its_bits() -> None:
    work = job(SHOTPlus(rotation_epochs=1))
    before = copy.deepcopy(work.student.classifier)
    work.run(lambda facts: None)
    assert same_weights(work.student.classifier, before)


def test_each_target_gets_a_head_of_its_own_on_the_carried_model() -> None:
    method = SHOTPlus(rotation_epochs=1)
    job(method).run(lambda facts: None)
    first = method.head
    second = job(method, student=method.student)
    assert method.head is not first
    assert not method.head_ready
    second.run(lambda facts: None)
    assert method.head_ready


def count_trainings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    real = shot_plus.train_head

    def counted(*arguments: Any) -> float:
        calls.append(1)
        return real(*arguments)

    monkeypatch.setattr(shot_plus, "train_head", counted)
    return calls


def test_a_resume_brings_the_head_and_does_not_train_it_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = job(SHOTPlus(rotation_epochs=2), epochs=3)
    states: list[dict[str, Any]] = []
    whole.run(lambda facts: states.append(copy.deepcopy(whole.state_dict())))
    calls = count_trainings(monkeypatch)
    method = SHOTPlus(rotation_epochs=2)
    resumed = job(method, epochs=3, student=tiny_network(seed=5))
    resumed.load_state_dict(states[0])
    resumed.run(lambda facts: None)
    assert not calls
    assert isinstance(whole.method, SHOTPlus)
    assert method.head is not None
    assert whole.method.head is not None
    assert same_weights(method.head, whole.method.head)
    assert same_weights(resumed.student, whole.student)


def test_the_state_of_a_head_that_was_never_trained_is_not_taken_for_one() -> None:
    method = SHOTPlus(rotation_epochs=1)
    job(method)
    assert method.state_dict() == {}
    again = SHOTPlus(rotation_epochs=1)
    job(again)
    again.load_state_dict({})
    assert not again.head_ready


def test_on_feature_vectors_it_is_shot() -> None:
    """Vectors cannot be rotated, so the task does not exist."""
    one, two = job(SHOTPlus(), "features"), job(SHOT(), "features")
    one.run(lambda facts: None)
    two.run(lambda facts: None)
    assert same_weights(one.student, two.student)
    assert one.method.state_dict() == {}


def test_without_the_task_it_is_shot() -> None:
    one, two = job(SHOTPlus(rotation=0)), job(SHOT())
    one.run(lambda facts: None)
    two.run(lambda facts: None)
    assert same_weights(one.student, two.student)


def test_images_that_are_not_square_are_refused() -> None:
    loader = tiny_loader()

    class Wide:
        def __len__(self) -> int:
            return len(loader)

        def sweep(self, view: str = "test"):  # type: ignore[no-untyped-def]
            for batch in loader.sweep(view):
                yield Batch((batch.images[..., :-2, :],), batch.index)

    method = SHOTPlus()
    method.setup(tiny_network(), Wide())
    with pytest.raises(CosdaError, match="square"):
        method.begin_epoch(Progress(1, 0, 1, stream(0, "epoch")))


# --- MixMatch ---------------------------------------------------------------------------------------------------------


def test_the_most_confident_of_each_class_become_labelled() -> None:
    rng = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(40, 3, generator=rng, dtype=torch.float64)
    rows = logits.softmax(1).tolist()
    entropy = [-sum(p * math.log(p + 1e-5) for p in row) for row in rows]
    predicted = [row.index(max(row)) for row in rows]
    share = sum(h < sum(entropy) / 40 for h in entropy) / 40
    want = [UNKNOWN] * 40
    for c in range(3):
        members = sorted((i for i in range(40) if predicted[i] == c), key=lambda i: entropy[i])
        for i in members[: math.floor(share * len(members))]:
            want[i] = c
    assert confident_labels(logits).tolist() == want
    assert 0 < want.count(UNKNOWN) < 40


def test_a_guess_is_the_sharpened_mean_over_two_views() -> None:
    student = tiny_network("plain")
    first, second = torch.randn(2, 5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    got = guess(student, first, second, 0.5)
    with torch.no_grad():
        one, two = (student(view).logits.softmax(1).double().tolist() for view in (first, second))
    for i in range(5):
        mean = [(a + b) / 2 for a, b in zip(one[i], two[i], strict=True)]
        want = [m**2 / sum(v**2 for v in mean) for m in mean]
        assert got[i].tolist() == pytest.approx(want, rel=1e-4)


def test_each_view_is_guessed_with_its_own_statistics_as_in_the_original() -> None:
    student = tiny_network()
    twin = copy.deepcopy(student)
    first, second = torch.randn(2, 5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    second = 3 * second + 1  # so that the statistics of both views together are others
    with torch.no_grad():
        p = (twin(first).logits.softmax(1) + twin(second).logits.softmax(1)) / 2
    torch.testing.assert_close(guess(student, first, second, 0.5), p**2 / (p**2).sum(1, keepdim=True))
    for own, other in zip(statistics(student), statistics(twin), strict=True):
        assert torch.equal(own, other)


def test_a_single_unlabelled_image_is_guessed_from_both_views_together() -> None:
    """Alone it would have no batch statistics, and BatchNorm would refuse it."""
    first, second = torch.randn(2, 1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    got = guess(tiny_network(), first, second, 0.5)
    assert got.sum().item() == pytest.approx(1)
    with torch.no_grad():
        p = tiny_network()(torch.cat([first, second])).logits.softmax(1).mean(0, keepdim=True)
    torch.testing.assert_close(got, p**2 / (p**2).sum())


def test_mixing_keeps_the_larger_share_of_each_row() -> None:
    views = tuple(torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)))
    labels, guesses = torch.tensor([2, UNKNOWN, 0, UNKNOWN]), torch.tensor([[0.2, 0.3, 0.5], [1.0, 0, 0]])
    mixed = mix(views, labels, guesses, 0.75, stream(0, "mix"))
    rows = [views[0][0], views[0][2], views[0][1], views[0][3], views[1][1], views[1][3]]
    eye = torch.eye(3)
    soft = [eye[2], eye[0], guesses[0], guesses[1], guesses[0], guesses[1]]
    share, partner = draw_mixing(6, 0.75, True, stream(0, "mix"), CPU)
    assert 0.5 <= share < 1
    for i, j in enumerate(partner.tolist()):
        torch.testing.assert_close(mixed.images[i], share * rows[i] + (1 - share) * rows[j])
        torch.testing.assert_close(mixed.labels[i], share * soft[i] + (1 - share) * soft[j])
    assert mixed.labelled == 2


@pytest.mark.parametrize("kind", ["batch_norm", "plain"])
def test_a_renewed_classifier_has_new_values_in_the_same_tensors(kind: str) -> None:
    classifier = tiny_network(kind).classifier
    before, held = copy.deepcopy(classifier), list(classifier.parameters())
    renew(classifier, stream(0, "new"))
    assert all(a is b for a, b in zip(held, classifier.parameters(), strict=True))
    assert not same_weights(classifier, before)
    assert not bool(classifier.bias.any())  # type: ignore[operator]
    assert float(classifier.weight.detach().abs().max()) <= 1 / math.sqrt(6) + 1e-6  # type: ignore[operator]
    with pytest.raises(CosdaError, match="linear"):
        renew(torch.nn.Identity(), stream(0, "new"))


def last_part(**settings: Any) -> SHOTPlus:
    return SHOTPlus(rotation_epochs=1, mixmatch=True, mixmatch_epochs=2, **settings)


@pytest.mark.parametrize("kind", ["batch_norm", "plain", "features"])
def test_the_classifier_stays_until_mixmatch_renews_and_trains_it(kind: str) -> None:
    method = last_part()
    work = job(method, kind, epochs=4)
    states, terms = [copy.deepcopy(work.student.classifier)], []

    def note(facts: Any) -> None:
        states.append(copy.deepcopy(work.student.classifier))
        terms.append(set(facts.terms))

    work.run(note)
    assert same_weights(states[0], states[1])
    assert same_weights(states[0], states[2])
    assert not same_weights(states[2], states[3])
    assert not same_weights(states[3], states[4])
    assert all("information" in names for names in terms[:2])
    assert terms[2:] == [{"labelled", "unlabelled"}] * 2
    assert method.predictor() is work.student


def test_the_step_of_mixmatch_is_its_formula() -> None:
    method, batch = ready(last_part(mixmatch_weight=80.0), "plain", epoch=3)
    assert method.known is not None
    assert len(batch.views) == 2
    labels = method.known[batch.index].clone()
    labels[:2], labels[2:4] = torch.tensor([1, 2]), UNKNOWN
    method.known[batch.index] = labels
    twin = copy.deepcopy(method.student)
    method.progress = Progress(1, 3, 4, stream(0, "step"))
    first, second = (view[labels == UNKNOWN] for view in batch.views)
    mixed = mix(batch.views, labels, guess(twin, first, second, 0.5), 0.75, stream(0, "step"))
    with torch.no_grad():
        rows = twin(mixed.images).logits.softmax(1).double().tolist()
    soft, n = mixed.labels.double().tolist(), mixed.labelled
    known = -sum(q * math.log(p) for i in range(n) for q, p in zip(soft[i], rows[i], strict=True)) / n
    squares = [(p - q) ** 2 for i in range(n, len(rows)) for q, p in zip(soft[i], rows[i], strict=True)]
    terms = {name: term.item() for name, term in method.step(batch).items()}
    assert terms == {
        "labelled": pytest.approx(known, rel=1e-4),
        "unlabelled": pytest.approx(80 * 0.75 * sum(squares) / len(squares), rel=1e-3),  # the second of two epochs
    }


@pytest.mark.parametrize("label", [1, UNKNOWN])
def test_a_batch_with_only_labelled_or_only_unlabelled_images(label: int) -> None:
    method, batch = ready(last_part(), epoch=2)
    assert method.known is not None
    method.known[:] = label
    terms = method.step(batch)
    assert all(torch.isfinite(term) for term in terms.values())
    assert ("unlabelled" in terms) == (label == UNKNOWN)
    if label == UNKNOWN:
        assert terms["labelled"].item() == 0


def test_mixmatch_leaves_epochs_to_shot() -> None:
    with pytest.raises(CosdaError, match="mixmatch_epochs = 2 leaves none of 2 epochs"):
        job(last_part(), epochs=2).run(lambda facts: None)


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_mixmatch_resumes_with_its_labels(stop: int) -> None:
    whole = job(last_part(), epochs=4)
    states: list[dict[str, Any]] = []
    whole.run(lambda facts: states.append(copy.deepcopy(whole.state_dict())))
    resumed = job(last_part(), epochs=4, student=tiny_network(seed=5))
    resumed.load_state_dict(states[stop - 1])
    resumed.run(lambda facts: None)
    assert same_weights(resumed.student, whole.student)
