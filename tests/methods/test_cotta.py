"""CoTTA against slow versions of its formulas, its identities, and the traps of the code it was studied with."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from cosda.api import run_chain
from cosda.config.schema import Optimisation
from cosda.methods.base import Progress
from cosda.methods.cotta import CoTTA
from cosda.models.artifact import load
from cosda.models.network import Network, same_weights
from cosda.models.statistics import statistics
from cosda.parts.augment import Augmentation
from cosda.parts.schedule import cosine
from cosda.randomness import stream
from cosda.run.chain import carried_path
from cosda.run.train import Training
from cosda.types import Batch
from tiny import SEEN, read, tiny_benchmark, tiny_loader, tiny_network


def ready(method: CoTTA, kind: str = "batch_norm", epoch: int = 0, epochs: int = 4) -> tuple[CoTTA, Batch]:
    """A method whose teacher, student and source are three different networks, as later in a chain."""
    loader = tiny_loader(kind, count=16, batch_size=8)
    method.setup(tiny_network(kind), loader)
    method.pair.teacher.load_state_dict(tiny_network(kind, seed=1).state_dict())
    method.source.load_state_dict(tiny_network(kind, seed=2).state_dict())
    method.begin_epoch(Progress(1, epoch, epochs, stream(0, "epoch")))
    return method, next(iter(loader.epoch(1, 0)))


def job(method: CoTTA, kind: str = "batch_norm", epochs: int = 2, student: Network | None = None) -> Training:
    how = Optimisation(epochs=epochs, batch_size=8, lr=0.05, lr_end=0.01)
    loader = tiny_loader(kind, count=20, batch_size=8)
    return Training(method, student or tiny_network(kind), loader, how, 0, 1, "target")


def same_parameters(left: Network, right: Network) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left.parameters(), right.parameters(), strict=True))


def passes_of(method: CoTTA, batch: Batch) -> dict[str, list[Tensor]]:
    """What each network is shown in one step."""
    seen: dict[str, list[Tensor]] = {"source": [], "teacher": [], "student": []}
    networks = {"source": method.source, "teacher": method.pair.teacher, "student": method.student}
    hooks = [
        network.register_forward_hook(lambda module, inputs, output, to=seen[name]: to.append(inputs[0]))
        for name, network in networks.items()
    ]
    method.step(batch)
    for hook in hooks:
        hook.remove()
    return seen


def slow_softmax(row: list[float]) -> list[float]:
    top = max(row)
    powers = [math.exp(v - top) for v in row]
    return [p / sum(powers) for p in powers]


def batch_outputs(network: Network, images: Tensor) -> list[list[float]]:
    """Logits with the batch's own BatchNorm statistics, on a copy, so that nothing is disturbed."""
    with torch.no_grad():
        return copy.deepcopy(network).train()(images).logits.double().tolist()


def slow_loss(labels: list[list[float]], predicted: list[list[float]], temperature: float, gate: float) -> float:
    kept = []
    for z, y in zip(labels, predicted, strict=True):
        if max(slow_softmax(z)) > gate:
            q, p = slow_softmax([v / temperature for v in z]), slow_softmax(y)
            kept.append(-sum(a * math.log(b) for a, b in zip(q, p, strict=True)))
    return sum(kept) / len(kept) if kept else 0.0


@pytest.mark.parametrize("kind", ["batch_norm", "plain"])
@pytest.mark.parametrize("ap", [0.0, 1.0])
def test_step_equals_the_formulas_written_as_loops(kind: str, ap: float) -> None:
    method, batch = ready(CoTTA(augmentations=4, ap=ap), kind)
    teacher = method.pair.teacher
    if ap == 0:  # every batch is confident enough
        labels = batch_outputs(teacher, batch.images)
    else:  # no batch is: the mean over augmentations of logits, not of probabilities
        rng = stream(0, "epoch")
        each = [batch_outputs(teacher, Augmentation()(batch.images, SEEN, rng)) for _ in range(4)]
        labels = [[sum(view[i][c] for view in each) / 4 for c in range(len(each[0][0]))] for i in range(len(each[0]))]
    confidences = sorted(max(slow_softmax(row)) for row in labels)
    gate = (confidences[3] + confidences[4]) / 2  # half of the images
    method.threshold = gate
    predicted = batch_outputs(method.student, batch.images)
    terms = method.step(batch)
    assert set(terms) == {"consistency"}
    assert terms["consistency"].item() == pytest.approx(slow_loss(labels, predicted, 0.3, gate), rel=1e-4)


def test_the_original_step_is_plain_cross_entropy_of_all_images() -> None:
    method, batch = ready(CoTTA(**CoTTA.variants["original-step"], ap=0))
    labels = batch_outputs(method.pair.teacher, batch.images)
    predicted = batch_outputs(method.student, batch.images)
    assert method.step(batch)["consistency"].item() == pytest.approx(slow_loss(labels, predicted, 1, 0), rel=1e-4)


@pytest.mark.parametrize("who", ["source", "teacher"])
def test_the_mean_confidence_decides_whether_to_augment(who: str) -> None:
    method, batch = ready(CoTTA(augmentations=3, confidence_of=who))
    judge = method.source if who == "source" else method.pair.teacher
    confidence = [max(slow_softmax(row)) for row in batch_outputs(judge, batch.images)]
    mean = sum(confidence) / len(confidence)
    for ap, augmented in ((mean + 1e-3, True), (mean - 1e-3, False)):
        method.ap = ap
        seen = passes_of(method, batch)
        judged = 1 if who == "source" else 0
        looked = 3 if augmented else 1
        looked += 1 if who == "teacher" and augmented else 0  # the clean pass that was judged
        assert {name: len(shown) for name, shown in seen.items()} == {
            "source": judged, "teacher": looked, "student": 1,
        }  # fmt: skip
        clean = [torch.equal(view, batch.images) for view in seen["teacher"]]
        assert clean == ([True] * (looked - 3) + [False] * 3 if augmented else [True])


def test_no_pass_that_decides_nothing() -> None:
    for method in (CoTTA(ap=0), CoTTA(augmentations=0)):
        seen = passes_of(*ready(method))
        assert {name: len(shown) for name, shown in seen.items()} == {"source": 0, "teacher": 1, "student": 1}


def test_feature_vectors_have_no_augmentation_but_noise_if_asked() -> None:
    seen = passes_of(*ready(CoTTA(ap=1), "features"))
    assert {name: len(shown) for name, shown in seen.items()} == {"source": 0, "teacher": 1, "student": 1}
    method, batch = ready(CoTTA(ap=1, augmentations=50, feature_noise=0.2), "features")
    seen = passes_of(method, batch)
    assert {name: len(shown) for name, shown in seen.items()} == {"source": 1, "teacher": 50, "student": 1}
    noise = torch.stack(seen["teacher"]) - batch.images
    assert noise.std().item() == pytest.approx(0.2, rel=0.1)
    assert noise.mean().abs() < 0.02


def test_a_batch_without_a_confident_image_costs_nothing() -> None:
    """In the authors' code its loss is 0/0, and from then on all weights are NaN."""
    method, batch = ready(CoTTA(gate=(1.0, 1.0), augmentations=1))
    term = method.step(batch)["consistency"]
    assert term.item() == 0
    term.backward()
    assert all(p.grad is not None and bool((p.grad == 0).all()) for p in method.student.parameters())
    work = job(CoTTA(gate=(1.0, 1.0), augmentations=1))
    work.run(lambda facts: None)
    assert all(bool(torch.isfinite(value).all()) for value in work.student.state_dict().values())


def test_the_gate_follows_its_schedule() -> None:
    for epoch in (0, 2, 3):
        method, _ = ready(CoTTA(), epoch=epoch)
        assert method.threshold == pytest.approx(cosine(0.3, 0.5, epoch, 4))


@pytest.mark.parametrize("kind", ["batch_norm", "plain", "features"])
@pytest.mark.parametrize("variant", list(CoTTA.variants))
def test_restore_of_1_returns_the_source_classifier_included(kind: str, variant: str) -> None:
    method = CoTTA(**CoTTA.variants[variant] | {"restore": 1.0, "augmentations": 1})
    source = tiny_network(kind)
    work = job(method, kind)
    work.run(lambda facts: None)
    assert same_parameters(work.student, source)
    if variant != "original-step":  # there the teacher takes in the student before it is restored
        assert same_parameters(method.predictor(), source)


def test_restore_of_0_restores_nothing_and_draws_nothing() -> None:
    method, _ = ready(CoTTA(restore=0))
    before, state = copy.deepcopy(method.student), method.progress.rng.get_state()
    method.after_update()
    assert same_weights(before, method.student)
    assert torch.equal(state, method.progress.rng.get_state())


def test_each_element_of_every_parameter_is_restored_with_its_share() -> None:
    method, _ = ready(CoTTA(restore=0.3))
    names = [name for name, _ in method.student.named_parameters()]
    assert any(name.startswith("classifier") and name.endswith("original0") for name in names), "magnitude"
    assert any(name.startswith("classifier") and name.endswith("original1") for name in names), "direction"
    back: dict[str, int] = dict.fromkeys(names, 0)
    for _ in range(50):
        with torch.no_grad():
            for parameter in method.student.parameters():
                parameter.fill_(100.0)
        method.after_update()
        for (name, own), source in zip(method.student.named_parameters(), method.source.parameters(), strict=True):
            restored = own != 100
            assert torch.equal(own[restored], source[restored])
            back[name] += int(restored.sum())
    for name, parameter in method.student.named_parameters():
        tries = 50 * parameter.numel()
        assert abs(back[name] - 0.3 * tries) < 4 * math.sqrt(tries * 0.3 * 0.7), name


def test_what_is_not_trained_is_not_restored() -> None:
    method, _ = ready(CoTTA(restore=1.0, encoder_rate=0.0))
    before = copy.deepcopy(method.student)
    method.after_update()
    assert same_weights(before.encoder, method.student.encoder)
    assert same_parameters(method.student.classifier, method.source.classifier)


def test_the_anchor_stays_the_source_over_two_targets_and_moves_only_if_asked() -> None:
    for anchor in ("source", "stage"):
        method, student = CoTTA(anchor=anchor, augmentations=1, ap=0), tiny_network()
        source = copy.deepcopy(student)
        job(method, student=student).run(lambda facts: None)
        assert same_weights(method.source, source)
        student.load_state_dict(method.predictor().state_dict())
        carried = copy.deepcopy(student)
        assert not same_parameters(carried, source)
        job(method, student=student).run(lambda facts: None)
        assert same_weights(method.source, source if anchor == "source" else carried)


def test_the_anchor_is_known_after_a_resume_in_the_second_stage() -> None:
    method, student = CoTTA(augmentations=1, ap=0), tiny_network()
    source = copy.deepcopy(student)
    job(method, student=student).run(lambda facts: None)
    student.load_state_dict(method.predictor().state_dict())
    carried, states = copy.deepcopy(student), []
    second = job(method, epochs=3, student=student)
    second.run(lambda facts: states.append(copy.deepcopy(second.state_dict())))

    resumed = job(CoTTA(augmentations=1, ap=0), epochs=3, student=carried)
    resumed.load_state_dict(states[0])
    assert same_weights(resumed.method.source, source)
    resumed.run(lambda facts: None)
    assert same_weights(second.student, resumed.student)
    assert same_weights(method.predictor(), resumed.method.predictor())
    third = job(resumed.method, student=tiny_network(seed=9))
    assert same_weights(third.method.source, source)


def test_a_chain_with_restore_of_1_ends_with_the_weights_of_the_source(tmp_path: Path) -> None:
    changes = (
        "epochs=2", "batch_size=8", "source.epochs=2", "source.batch_size=8", "network.encoder=small",
        "network.bottleneck=8", "data.size=16", "restore=1", "augmentations=1",
    )  # fmt: skip
    run = run_chain(tiny_benchmark(), "cotta", out=tmp_path, settings=read(changes))
    first, last = (load(carried_path(run, stage)).network.state_dict() for stage in (0, 2))
    learnt = [name for name in first if "running" not in name and "num_batches" not in name]
    assert any(name.startswith("encoder") for name in learnt)
    assert any(name.startswith("classifier") for name in learnt)
    assert all(torch.equal(first[name], last[name]) for name in learnt)


def test_offline_they_meet_once_an_epoch_and_the_student_restarts() -> None:
    method = CoTTA(momentum=(0.9, 0.9), statistics_momentum=(0.6, 0.6), restart=False, augmentations=1)
    work = job(method, epochs=1)
    incoming = copy.deepcopy(method.pair.teacher)
    method.begin_epoch(Progress(1, 0, 1, stream(0)))
    for batch in work.loader.epoch(1, 0):
        work._update(method.step(batch))
        assert same_weights(incoming, method.pair.teacher)
    method.end_epoch()
    for slow, old, fast in zip(
        method.predictor().parameters(), incoming.parameters(), work.student.parameters(), strict=True
    ):
        torch.testing.assert_close(slow, 0.9 * old + 0.1 * fast)
    for slow, old, fast in zip(
        statistics(method.predictor()), statistics(incoming), statistics(work.student), strict=True
    ):
        torch.testing.assert_close(slow, 0.6 * old + 0.4 * fast)
    work = job(CoTTA(augmentations=1), epochs=1)
    work.run(lambda facts: None)
    assert same_parameters(work.student, work.method.predictor())


def test_originally_they_meet_at_every_step_before_the_restore() -> None:
    method = CoTTA(**CoTTA.variants["original-step"] | {"restore": 1.0, "augmentations": 1})
    work = job(method, epochs=1)
    source = copy.deepcopy(work.student)
    method.begin_epoch(Progress(1, 0, 1, stream(0)))
    taken: list[list[Tensor]] = []
    meet = method.pair.meet

    def watched(momentum: float, statistics_momentum: float, mixture: bool) -> None:
        assert (momentum, statistics_momentum) == (0.999, 0.999)
        taken.append([p.detach().clone() for p in work.student.parameters()])
        meet(momentum, statistics_momentum, mixture)

    method.pair.meet = watched  # type: ignore[assignment]
    work._update(method.step(next(iter(work.loader.epoch(1, 0)))))
    assert len(taken) == 1
    assert same_parameters(work.student, source)
    for slow, old, fast in zip(method.predictor().parameters(), source.parameters(), taken[0], strict=True):
        torch.testing.assert_close(slow, 0.999 * old + 0.001 * fast)
    assert not same_parameters(method.predictor(), source)
    method.end_epoch()
    assert len(taken) == 1


def test_labelling_leaves_teacher_and_source_alone() -> None:
    method, batch = ready(CoTTA(augmentations=2))
    before = copy.deepcopy((method.pair.teacher, method.source))
    method.step(batch)
    assert same_weights(before[0], method.pair.teacher)
    assert same_weights(before[1], method.source)
    assert not any(p.requires_grad for network in (method.pair.teacher, method.source) for p in network.parameters())


@pytest.mark.parametrize(
    ("variant", "anchor", "judge"),
    [("paper", "source", "source"), ("authors", "stage", "teacher"), ("original-step", "source", "source")],
)
def test_the_authors_restore_to_the_stages_first_model_and_ask_the_teacher(
    variant: str, anchor: str, judge: str
) -> None:
    method = CoTTA(**CoTTA.variants[variant] | {"augmentations": 1})
    assert (method.anchor, method.confidence_of) == (anchor, judge)
    source, carried = tiny_network(), tiny_network(seed=5)
    job(method, student=copy.deepcopy(source))
    job(method, student=copy.deepcopy(carried))  # the next target begins with another model
    assert same_weights(method.source, carried if variant == "authors" else source)
    method, batch = ready(method)
    assert len(passes_of(method, batch)["source"]) == (0 if variant == "authors" else 1)
