"""DaC against slow versions of its formulas on a tiny memory, and the rules of its two parts."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cosda import losses
from cosda.config.schema import Optimisation
from cosda.methods.base import Progress
from cosda.methods.dac import DaC, divide
from cosda.models.bn_folding import evaluating
from cosda.models.network import same_weights
from cosda.models.statistics import statistics
from cosda.parts.prototypes import centroid_labels
from cosda.randomness import stream
from cosda.run.train import Training
from cosda.types import Batch
from tiny import CLASSES, tiny_loader, tiny_network

ε = 1e-6


def job(method: DaC, kind: str = "batch_norm", epochs: int = 2, count: int = 20) -> Training:
    how = Optimisation(epochs=epochs, batch_size=8, lr=0.05, lr_end=0.01)
    return Training(method, tiny_network(kind), tiny_loader(kind, count=count, batch_size=8), how, 0, 1, "target")


def ready(method: DaC, epoch: int = 1, kind: str = "features") -> tuple[Training, Batch]:
    work = job(method, kind)
    method.begin_epoch(Progress(1, epoch, 4, stream(0, "epoch")))
    return work, next(iter(work.loader.epoch(1, epoch, method.views)))


def unit(count: int, width: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(count, width, generator=torch.Generator().manual_seed(seed)))


# --- Slow loops from the formulas of the specification ---------------------------------------------------------------


def slow_contrast(o: list[list[float]], s: list[float], ids: list[int], index: list[int], k: int) -> float:
    total = 0.0
    existing = sorted(set(ids))
    for i, row in enumerate(o):
        own, d = ids[index[i]], {}
        for a in existing:
            n = sum(1 for one in ids if one == a) + (k + 1) * any(ids[j] == a for j in index)
            d[a] = (sum(row[j] for j in range(len(ids)) if ids[j] == a) + (s[i] if own == a else 0)) / n
        π = math.exp(d[own]) / (sum(math.exp(value) for value in d.values()) + ε)
        total -= math.log(π + ε)
    return total / len(o)


def slow_mmd(o: list[list[float]], labels: list[int], source_like: list[bool], index: list[int]) -> float:
    total = 0.0
    for i, row in enumerate(o):
        means = {}
        for part in (True, False):
            same = [row[j] for j in range(len(labels)) if labels[j] == labels[index[i]] and source_like[j] is part]
            means[part] = sum(same) / len(same) if same else 0.0
        other = not source_like[index[i]]
        ρ = math.exp(means[other]) / (math.exp(means[True]) + math.exp(means[False]) + ε)
        total -= math.log(ρ + ε)
    return total / len(o)


@pytest.mark.parametrize("seed", range(4))
def test_contrast_equals_the_loops(seed: int) -> None:
    memory, u = unit(9, 4, seed), unit(3, 4, 50 + seed)
    ids = [0, 0, 1, 2 + 3, 2 + 4, 1, 2 + 6, 0, 2 + 8]  # two classes; images 3, 4, 6 and 8 are target-specific
    index, k = [1, 4, 2 if seed % 2 else 7], 2
    o, s = u @ memory.T / 0.2, torch.tensor([3.0, -1.0, 2.0])
    dense = torch.tensor(ids).unique(return_inverse=True)[1]
    fast = losses.adaptive_contrast(o, s, dense, dense[index], k + 1)
    assert fast.item() == pytest.approx(slow_contrast(o.tolist(), s.tolist(), ids, index, k), rel=1e-5)


def test_the_denominator_counts_the_local_score_for_groups_of_the_batch_and_only_once() -> None:
    """Two images of group 0 in the batch, none of group 1: n = (2 + (k + 1), 1), by hand."""
    o = torch.tensor([[1.0, 2.0, 0.5], [0.0, 1.0, 4.0]])
    fast = losses.adaptive_contrast(o, torch.tensor([3.0, 1.0]), torch.tensor([0, 0, 1]), torch.tensor([0, 0]), extra=2)
    wanted = 0.0
    for own, other in (((1 + 2 + 3) / 4, 0.5), ((0 + 1 + 1) / 4, 4.0)):
        wanted -= math.log(math.exp(own) / (math.exp(own) + math.exp(other) + ε) + ε) / 2
    assert fast.item() == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_mmd_equals_the_loops_also_where_a_part_of_a_class_is_empty(seed: int) -> None:
    memory, u = unit(8, 4, seed), unit(4, 4, 90 + seed)
    labels = [0, 0, 1, 1, 1, 2, 2, 0]
    source_like = [True, False, True, True, False, True, True, False]  # class 2 has no target-specific image
    index = [0, 1, 5, 4]
    o = u @ memory.T / 0.1
    fast = losses.classwise_mmd(o, torch.tensor(labels), torch.tensor(source_like), torch.tensor(index), 4)
    assert fast.item() == pytest.approx(slow_mmd(o.tolist(), labels, source_like, index), rel=1e-5)


def test_division_takes_the_most_confident_of_each_class_and_later_classes_win() -> None:
    p = torch.tensor([[0.5, 0.45, 0.05], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.7, 0.2, 0.1], [0.2, 0.2, 0.6]])
    assert divide(p, 1).tolist() == [3 + 0, 1, 3 + 2, 0, 2]
    assert divide(p, 2).tolist() == [1, 1, 2, 0, 2]  # image 0 is claimed by classes 0 and 1
    assert divide(p, 0).tolist() == [3, 4, 5, 6, 7]
    assert divide(p, 40).tolist() == [2] * 5


# --- The whole step ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["features", "batch_norm"])
def test_a_step_equals_the_formulas_written_as_loops(kind: str) -> None:
    method = DaC(cross_entropy=0.3, information=0, contrast=0.7, mmd=0.9, confident=3, neighbours=4, gate=0.6)
    _, batch = ready(method, kind=kind)
    assert method.memory is not None
    assert method.groups is not None
    twin = copy.deepcopy(method.student)
    with torch.no_grad():
        seen = [twin(view) for view in batch.views]  # three passes: each view has its own batch statistics
    u, u1, u2 = (F.normalize(one.features).double() for one in seen)
    memory, index, size = method.memory.double(), batch.index.tolist(), len(batch)
    ids, labels = method.groups.tolist(), method.labels.tolist()
    for i, row in enumerate(seen[0].logits.softmax(1).tolist()):
        if max(row) >= 0.6:
            ids[index[i]] = row.index(max(row))
    o = [[float(u[i] @ memory[j]) / 0.05 for j in range(len(memory))] for i in range(size)]
    s = [
        (0.5 * float(u[i] @ u1[i]) + 0.5 * float(u[i] @ u2[i])) / 0.05 + sum(sorted(o[i], reverse=True)[:4])
        for i in range(size)
    ]
    entropy = sum(
        -math.log(one.logits.softmax(1)[i, labels[index[i]]].item()) / size for one in seen for i in range(size)
    )
    terms = {name: term.item() for name, term in method.step(batch).items()}
    assert method.groups.tolist() == ids
    assert terms == {
        "information": 0,
        "cross_entropy": pytest.approx(0.3 * entropy, rel=1e-4),
        "contrast": pytest.approx(0.7 * slow_contrast(o, s, ids, index, 4), rel=1e-4),
        "mmd": pytest.approx(0.9 * slow_mmd(o, labels, [one < len(CLASSES) for one in ids], index), rel=1e-4),
    }


def test_gradients_reach_the_strong_views_and_never_the_memory() -> None:
    method = DaC(cross_entropy=0, information=0, mmd=0)
    _, batch = ready(method)
    views = tuple(view.clone().requires_grad_() for view in batch.views)
    method.step(Batch(views, batch.index))["contrast"].backward()
    assert all(view.grad is not None and bool((view.grad != 0).any()) for view in views)
    assert method.memory is not None
    assert not method.memory.requires_grad


def test_warm_up_is_information_alone_in_a_pass_of_each_view_without_a_sweep() -> None:
    """Both codes pass all three views in warm-up too: BatchNorm sees the strong ones."""
    method = DaC()
    work, batch = ready(method, epoch=0, kind="batch_norm")
    twin = copy.deepcopy(method.student).train()
    with torch.no_grad():
        for view in batch.views:
            twin(view)
    calls: list[Tensor] = []
    method.student.register_forward_hook(lambda module, inputs, output: calls.append(inputs[0]))
    assert set(work._update(method.step(batch))) == {"information"}
    assert len(calls) == 3
    assert all(torch.equal(shown, view) for shown, view in zip(calls, batch.views, strict=True))
    for own, other in zip(statistics(method.student), statistics(twin), strict=True):
        assert torch.equal(own, other)
    assert method.memory is None
    method.begin_epoch(Progress(1, 1, 4, stream(0, "epoch")))
    assert set(method.step(batch)) == {"information", "cross_entropy", "contrast", "mmd"}


def test_warm_up_may_learn_labels_too_and_may_be_left_out() -> None:
    method = DaC(warm_up_labels=True)
    _, batch = ready(method, epoch=0)
    assert set(method.step(batch)) == {"information", "cross_entropy"}
    assert method.memory is None
    method = DaC(warm_up=0)
    _, batch = ready(method, epoch=0)
    assert "contrast" in method.step(batch)


# --- Memory -----------------------------------------------------------------------------------------------------------


def test_rows_of_the_batch_move_by_the_momentum_after_the_step_and_keep_length_one() -> None:
    method = DaC(keep=0.8)
    work, batch = ready(method)
    assert method.memory is not None
    before = method.memory.clone()
    with torch.no_grad():
        u = F.normalize(copy.deepcopy(method.student)(batch.images).features)
    terms = method.step(batch)
    assert torch.equal(method.memory, before), "the memory changes after the backward pass"
    work._update(terms)
    torch.testing.assert_close(method.memory.norm(dim=1), torch.ones(20))
    mixed = 0.8 * before[batch.index] + 0.2 * u
    torch.testing.assert_close(method.memory[batch.index], mixed / mixed.norm(dim=1, keepdim=True))
    others = torch.ones(20, dtype=torch.bool).index_fill(0, batch.index, False)
    assert torch.equal(method.memory[others], before[others])


def test_a_gated_image_becomes_source_like_and_never_returns() -> None:
    method = DaC(confident=0, gate=0.0)
    _, batch = ready(method)
    assert method.groups is not None
    assert method.groups.tolist() == [3 + j for j in range(20)]
    method.step(batch)
    inside = set(batch.index.tolist())
    assert all((one < 3) == (j in inside) for j, one in enumerate(method.groups.tolist()))
    method.gate = 1.0
    before = method.groups.clone()
    method.step(batch)
    method.begin_epoch(Progress(1, 2, 4, stream(0, "epoch")))
    assert torch.equal(method.groups, before), "neither a step nor a new epoch makes an image target-specific again"


def test_a_confidence_that_equals_the_gate_is_enough() -> None:
    method = DaC(confident=0, gate=1.0)
    work, batch = ready(method)
    with torch.no_grad():
        work.student.classifier.bias[2] += 1e4  # confidences of exactly 1
    method.step(batch)
    assert method.groups is not None
    assert set(method.groups[batch.index].tolist()) == {2}


def test_labels_are_of_the_training_images_by_index_and_new_in_each_epoch() -> None:
    """Trap B6: labels from another split, looked up with the indices of the training images."""
    method = DaC()
    work, _ = ready(method, kind="batch_norm")
    with evaluating(work.student):
        outputs = [work.student(batch.images) for batch in work.loader.sweep("test")]
    features, logits = (torch.cat([getattr(one, name) for one in outputs]) for name in ("features", "logits"))
    wanted = centroid_labels(features, logits.softmax(1), admissible_from="first")
    assert len(method.labels) == len(work.loader)
    assert torch.equal(method.labels, wanted)
    with torch.no_grad():
        work.student.classifier.bias.add_(torch.tensor([50.0, 0, 0]))
    method.begin_epoch(Progress(1, 2, 4, stream(0, "epoch")))
    assert method.labels.tolist() == [0] * 20


def test_the_memory_survives_a_resume_in_the_middle() -> None:
    whole = job(DaC(confident=2), epochs=4)
    states = []
    whole.run(lambda facts: states.append(copy.deepcopy(whole.state_dict())))
    assert "memory" not in states[0]["method"]
    assert {"memory", "groups"} <= set(states[1]["method"])
    resumed = job(DaC(confident=2), epochs=4)
    resumed.load_state_dict(states[1])
    resumed.run(lambda facts: None)
    assert same_weights(whole.student, resumed.student)
    assert torch.equal(whole.method.memory, resumed.method.memory)
    assert torch.equal(whole.method.groups, resumed.method.groups)


def test_the_next_domain_starts_with_warm_up_and_no_memory() -> None:
    method = DaC()
    job(method, "features").run(lambda facts: None)
    assert method.memory is not None
    job(method, "features", count=12)
    assert method.memory is None
    assert method.state_dict() == {}


def test_the_classifier_is_frozen() -> None:
    method = DaC()
    work = job(method, "features")
    before = copy.deepcopy(work.student.classifier)
    work.run(lambda facts: None)
    assert same_weights(before, work.student.classifier)
    assert [group.name for group in method.parameters()] == ["bottleneck"]


def test_fewer_images_than_neighbours() -> None:
    work = job(DaC(neighbours=50), "features", count=6)
    facts = []
    work.run(facts.append)
    assert all(math.isfinite(value) for value in facts[1].terms.values())
