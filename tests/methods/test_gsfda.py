"""G-SFDA against slow loops; what is protected keeps its bits; the traps of the repositories are not inherited."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cosda import losses
from cosda.config.schema import Optimisation
from cosda.errors import CosdaError
from cosda.methods.base import Progress
from cosda.methods.gsfda import GSFDA, gates
from cosda.models.bn_folding import evaluating
from cosda.models.masks import SCALE, MaskedNetwork, Masks, add_masks
from cosda.models.network import Network, same_weights
from cosda.parts.bank import Bank
from cosda.randomness import stream
from cosda.run.train import Training
from cosda.types import Batch
from tiny import CLASSES, tiny_loader, tiny_network

WIDTH = 6  # of the tiny networks' features
NAMES = ("one", "two", "three")
# Rows: one, two, three. Channel 0 is one's alone, 1 two's alone, 2 three's alone, 3 one's and two's, 4 all, 5 nobody's.
BINARY = torch.tensor([[1, 0, 0, 1, 1, 0], [0, 1, 0, 1, 1, 0], [0, 0, 1, 0, 1, 0]], dtype=torch.float32)


def masked(
    kind: str = "batch_norm", table: Tensor = BINARY, domain: str | None = "two", seed: int = 0
) -> MaskedNetwork:
    """A tiny network whose masks are exactly 0 and 1: sigmoid(±100) is, in single precision."""
    masks = Masks((2 * table - 1).clone())
    return MaskedNetwork(tiny_network(kind, seed), masks, NAMES[: len(table)], domain)


def training(method: GSFDA, student: Network, kind: str = "batch_norm", epochs: int = 4, **how: float) -> Training:
    values = {"lr": 0.05, "lr_end": 0.01, "weight_decay": 0.1, "momentum": 0.9} | how
    settings = Optimisation(epochs=epochs, batch_size=8, **values)  # type: ignore[arg-type]
    return Training(method, student, tiny_loader(kind, count=20, batch_size=8), settings, 0, 1, "target")


def begun(method: GSFDA, student: Network, kind: str = "batch_norm") -> Training:
    job = training(method, student, kind)
    method.begin_epoch(Progress(1, 0, 2, stream(0, "test")))
    return job


def first_batch(job: Training) -> Batch:
    return next(iter(job.loader.epoch(1, 0, ("weak",))))


# --- Equations --------------------------------------------------------------------------------------------------------


def test_the_losses_equal_slow_loops() -> None:
    rng = torch.Generator().manual_seed(1)
    p = torch.rand(5, 3, generator=rng).softmax(1)
    scores = torch.rand(5, 2, 3, generator=rng).softmax(2)
    total = 0.0
    for i in range(5):
        for j in range(2):
            total -= math.log(sum(float(p[i, c] * scores[i, j, c]) for c in range(3)) + 1e-8)
    assert float(losses.local_structure(p, scores)) == pytest.approx(total / 5, rel=1e-5)
    mean = [sum(float(p[i, c]) for i in range(5)) / 5 for c in range(3)]
    assert float(losses.negative_diversity(p)) == pytest.approx(sum(m * math.log(m + 1e-5) for m in mean), rel=1e-5)
    assert torch.isfinite(losses.local_structure(torch.eye(3), torch.eye(3).flip(0)[:, None])), "log of 0"


@pytest.mark.parametrize("exclude", ["batch", "own", "none"])
def test_a_step_equals_a_slow_loop(exclude: str) -> None:
    """Neighbours of the current features, among the rows that may be neighbours; then the rows are overwritten."""
    method, student = GSFDA(neighbours=3, diversity=2.0, exclude=exclude), masked()  # type: ignore[arg-type]
    job = begun(method, student)
    batch = first_batch(job)
    with torch.no_grad():
        output = copy.deepcopy(student)(batch.images)  # train mode: the batch's statistics
    # A bank in which an image's own row is nearest to it; predictions are confident, so that it matters who is near.
    rng = torch.Generator().manual_seed(0)
    keys = torch.nn.functional.normalize(torch.randn(20, WIDTH, generator=rng))
    keys[batch.index] = torch.nn.functional.normalize(output.features)
    bank_scores = (5 * torch.randn(20, 3, generator=rng)).softmax(1)
    method.bank = Bank(keys.clone(), bank_scores.clone())
    p = output.logits.softmax(1)
    total, index = 0.0, batch.index.tolist()
    for i, own in enumerate(index):
        barred = {"batch": index, "own": [own], "none": []}[exclude]
        feature = output.features[i] / output.features[i].norm()
        ranked = sorted(
            (j for j in range(len(keys)) if j not in barred), key=lambda j: -float(feature @ keys[j])
        )  # fmt: skip
        total -= sum(math.log(float(p[i] @ bank_scores[j]) + 1e-8) for j in ranked[:3])
    terms = method.step(batch)
    assert float(terms["neighbours"].detach()) == pytest.approx(total / len(batch), rel=1e-4)
    assert float(terms["diversity"].detach()) == pytest.approx(2 * float(losses.negative_diversity(p)), rel=1e-4)
    assert torch.allclose(method.bank.scores[batch.index], p, atol=1e-6)
    rest = [j for j in range(len(keys)) if j not in index]
    assert torch.equal(method.bank.features[rest], keys[rest])


def test_a_image_is_not_its_own_neighbour_b10() -> None:
    """The bank's row of an image is nearest to it; the repositories' exclusion leaves it in."""
    method = GSFDA(neighbours=1)
    begun(method, masked())
    index = torch.arange(4)
    rows = torch.nn.functional.normalize(torch.randn(20, WIDTH, generator=torch.Generator().manual_seed(0)))
    method.bank = Bank(rows, torch.full((20, 3), 1 / 3))
    for exclude, inside in (("none", True), ("own", False), ("batch", False)):
        method.exclude = exclude  # type: ignore[assignment]
        found = method._neighbours(rows[:4], index)[:, 0]
        assert torch.equal(found, index) == inside
    assert not torch.isin(found, index).any()


def test_a_domain_as_small_as_the_batch_has_neighbours() -> None:
    method = GSFDA(neighbours=2)
    begun(method, masked())
    rows = torch.nn.functional.normalize(torch.randn(4, WIDTH))
    method.bank = Bank(rows, torch.full((4, 3), 1 / 3))
    found = method._neighbours(rows, torch.arange(4))
    assert found.shape == (4, 2)
    assert not (found == torch.arange(4)[:, None]).any()


def test_the_bank_holds_masked_features_and_is_built_once() -> None:
    method, student = GSFDA(), masked()
    job = begun(method, student)
    bank = method.bank
    assert bank is not None
    method.begin_epoch(Progress(1, 1, 2, stream(0, "test")))
    assert method.bank is bank
    with evaluating(student):
        batch = next(iter(job.loader.sweep("weak")))
        features = student.bottleneck(student.encoder(batch.images)) * BINARY[1]
    assert torch.allclose(bank.features[: len(features)], features / features.norm(dim=1, keepdim=True), atol=1e-6)
    assert not bank.features[:, BINARY[1] == 0].any()


# --- Source training --------------------------------------------------------------------------------------------------


def test_every_head_is_trained_with_its_own_mask_b5() -> None:
    """In both repositories the target's head sees source mask ⊙ target mask."""
    student = masked(domain=None).eval()
    batch = torch.randn(7, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(7) % 3
    with torch.no_grad():
        terms = GSFDA(sparsity=0.5).source_losses(student, batch, labels, 0.1)
        features = student.bottleneck(student.encoder(batch))
        total = 0.0
        for t in range(3):
            logs = student.classifier(features * BINARY[t]).log_softmax(1)
            for i in range(7):
                soft = [0.9 * (c == int(labels[i])) + 0.1 / 3 for c in range(3)]
                total -= sum(soft[c] * float(logs[i, c]) for c in range(3)) / 7
    assert float(terms["cross_entropy"]) == pytest.approx(total, rel=1e-5)
    assert float(terms["sparsity"]) == pytest.approx(0.5 * float(BINARY.sum()) / 18, rel=1e-5)


def test_channels_of_a_target_alone_are_supervised_by_the_source_b5() -> None:
    student = masked(domain=None).train()
    batch = torch.randn(7, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    sum(GSFDA().source_losses(student, batch, torch.arange(7) % 3, 0.1).values()).backward()  # type: ignore[union-attr]
    gradient = student.bottleneck[0].weight.grad.abs().amax(dim=1)  # type: ignore[index]
    assert gradient[:5].min() > 1e-4, "channels 1 and 2 are in the mask of one target alone"
    assert gradient[5] == 0


def test_all_heads_cost_one_pass() -> None:
    student = masked(domain=None)
    before = Network.passes
    heads = student.heads(torch.randn(4, 3, 16, 16))
    assert Network.passes == before + 1
    assert len(heads) == 3


# --- What is protected ------------------------------------------------------------------------------------------------

PROTECTED = {"all": [0, 2, 3, 4], "past": [0, 3, 4]}  # adapting to `two`, whose past is `one`


@pytest.mark.parametrize("kind", ["batch_norm", "plain", "features"])
@pytest.mark.parametrize("protect", ["all", "past"])
def test_protected_entries_keep_their_bits_under_decay_and_momentum_b10(kind: str, protect: str) -> None:
    student = masked(kind)
    before = copy.deepcopy(student.state_dict())
    method = GSFDA(protect=protect)  # type: ignore[arg-type]
    job = training(method, student, kind)
    job.run(lambda facts: None)  # 4 epochs of 3 steps
    after = student.state_dict()
    closed = PROTECTED[protect]
    open_ = [channel for channel in range(WIDTH) if channel not in closed]
    names = [name for name, _ in student.bottleneck.named_parameters(prefix="bottleneck")]
    assert len(names) == (2 if kind == "plain" else 4)
    for name in names:
        assert torch.equal(after[name][closed], before[name][closed]), name
        assert (after[name][open_] != before[name][open_]).any(), name
    columns = "classifier.weight" if kind == "plain" else "classifier.parametrizations.weight.original1"
    assert torch.equal(after[columns][:, closed], before[columns][:, closed])
    assert (after[columns][:, open_] != before[columns][:, open_]).any()
    assert torch.equal(after["masks.embedding"], before["masks.embedding"])


def test_the_update_of_an_unprotected_entry_is_that_of_plain_sgd() -> None:
    """One step without masks of others leaves nothing out: gates of 1 change no bit."""
    alone, other = masked(table=BINARY[:1], domain="one"), masked(table=BINARY[:1], domain="one")
    first, second = GSFDA(), GSFDA()
    training(first, alone, epochs=1).run(lambda facts: None)
    job = training(second, other, epochs=1)
    second.gates = [(p, torch.ones(1)) for p in other.bottleneck.parameters()]
    job.run(lambda facts: None)
    assert same_weights(alone, other)


@pytest.mark.parametrize("mask", [0.1, 0.5, 0.7, 0.9, 0.99, 0.9995])
def test_a_half_open_mask_takes_its_part_of_the_update(mask: float) -> None:
    """1 - M of an update is left, and nothing at all from M = 0.999 on."""
    logit = math.log(mask / (1 - mask)) / SCALE
    table = torch.tensor([[logit] * WIDTH, [0.01] * WIDTH])  # the target's own mask protects nothing
    student = MaskedNetwork(tiny_network("features"), Masks(table), ("one", "two"), "two")
    weight = student.bottleneck[0].weight  # type: ignore[index]
    method = GSFDA()
    job = training(method, student, "features")
    method.begin_epoch(Progress(1, 0, 2, stream(0, "test")))
    old = weight.detach().clone()
    terms = method.step(first_batch(job))
    torch.stack(list(terms.values())).sum().backward()
    step = 0.05 * (weight.grad + 0.1 * old)
    method.before_update()
    assert job.optimiser is not None
    job._set_rates()
    job.optimiser.step()
    method.after_update()
    if mask > 0.999:
        assert torch.equal(weight, old)
    else:
        left = ((old - weight) / step).flatten()[step.flatten().abs() > 0.1 * step.abs().max()]
        assert left.tolist() == pytest.approx([1 - mask] * len(left), rel=0.02)


@pytest.mark.parametrize("held", [True, False])
def test_magnitude_and_bias_of_the_classifier_are_held_if_asked(held: bool) -> None:
    student = masked()
    before = copy.deepcopy(student.state_dict())
    training(GSFDA(protect_classifier=held), student).run(lambda facts: None)
    for name in ("classifier.bias", "classifier.parametrizations.weight.original0"):
        assert torch.equal(student.state_dict()[name], before[name]) == held, name


def test_only_the_targets_mask_is_ever_trained() -> None:
    table = torch.tensor([[1.0] * WIDTH, [0.002] * WIDTH, [-1.0] * WIDTH])
    student = MaskedNetwork(tiny_network(), Masks(table.clone()), NAMES, "two")
    training(GSFDA(train_masks=True, protect="past"), student).run(lambda facts: None)
    moved = (student.masks.embedding != table).any(dim=1)
    assert moved.tolist() == [False, True, False]
    first = masked(domain="one")  # nothing is past, but other masks stay even so
    training(GSFDA(train_masks=True, protect="past"), first).run(lambda facts: None)
    assert torch.equal(first.masks.embedding[1:], (2 * BINARY - 1)[1:])


def test_only_batch_norm_of_the_encoder_if_asked() -> None:
    student = masked()
    before = copy.deepcopy(student.state_dict())
    method = GSFDA(encoder="bn")
    training(method, student).run(lambda facts: None)
    after = student.state_dict()
    moved = {name for name in after if name.startswith("encoder") and not torch.equal(after[name], before[name])}
    assert {"encoder.1.weight", "encoder.1.bias"} <= moved
    assert not {"encoder.0.weight", "encoder.0.bias"} & moved
    method.encoder = "all"
    training(method, student).run(lambda facts: None)
    assert not torch.equal(student.state_dict()["encoder.0.weight"], before["encoder.0.weight"])


def test_a_model_without_a_bottleneck_protects_its_classifier() -> None:
    network = Network(tiny_network("plain").encoder, nn.Identity(), nn.Linear(32, len(CLASSES)))
    torch.manual_seed(0)
    student = add_masks(network, 32, NAMES).for_domain("two")
    before = student.classifier.weight.detach().clone()
    gate = dict((id(p), g) for p, g in gates(student, "all", False))[id(student.classifier.weight)]
    training(GSFDA(), student, "plain").run(lambda facts: None)
    closed = gate == 0
    assert 0 < closed.sum() < 32
    assert torch.equal(student.classifier.weight[:, closed], before[:, closed])


# --- Identities and states --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["batch_norm", "plain", "features"])
def test_a_mask_of_ones_is_no_mask(kind: str) -> None:
    plain, ones = tiny_network(kind), masked(kind, torch.ones(1, WIDTH), "one")
    training(GSFDA(), plain, kind).run(lambda facts: None)
    training(GSFDA(), ones, kind).run(lambda facts: None)
    shared = {key: value for key, value in ones.state_dict().items() if not key.startswith("masks")}
    assert shared.keys() == plain.state_dict().keys()
    for key, value in plain.state_dict().items():
        assert torch.equal(value, shared[key]), key


def test_the_predictor_has_the_mask_of_its_domain_and_leaves_training_alone() -> None:
    method, student = GSFDA(), masked()
    begun(method, student)
    modes = [module.training for module in student.modules()]
    for name in NAMES:
        seen = method.predictor(name)
        assert isinstance(seen, MaskedNetwork)
        assert seen.domain == name
        assert seen.state_dict().keys() == student.state_dict().keys()
        with evaluating(seen):
            output = seen(torch.randn(3, 3, 16, 16))
        assert not output.features[:, BINARY[NAMES.index(name)] == 0].any()
    assert [module.training for module in student.modules()] == modes
    assert student.domain == "two"
    with pytest.raises(CosdaError, match=r"no mask for a domain 'tow'\. Did you mean 'two'"):
        method.predictor("tow")


@pytest.mark.parametrize("train_masks", [True, False])
def test_masked_state_survives_save_and_load(train_masks: bool) -> None:
    method = GSFDA(train_masks=train_masks)
    whole = training(method, masked(), epochs=3)
    states: list[object] = [copy.deepcopy(whole.state_dict())]
    whole.run(lambda facts: states.append(copy.deepcopy(whole.state_dict())))
    for state in states[:2]:  # before the bank exists, and after
        resumed = training(GSFDA(train_masks=train_masks), masked(seed=0), epochs=3)
        resumed.load_state_dict(copy.deepcopy(state))  # type: ignore[arg-type]
        resumed.run(lambda facts: None)
        assert same_weights(whole.student, resumed.student)


def test_masks_are_almost_binary_and_half_open() -> None:
    torch.manual_seed(0)
    masks = add_masks(tiny_network(), 4096, NAMES).masks().detach().numpy()
    assert np.mean((masks < 0.01) | (masks > 0.99)) > 0.95
    assert abs(np.mean(masks > 0.5) - 0.5) < 0.03
    assert abs(np.mean((masks[0] > 0.5) & (masks[1] > 0.5)) - 0.25) < 0.03
