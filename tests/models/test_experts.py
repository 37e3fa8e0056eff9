"""The domain bank: each image is answered by its expert, whatever else is in the batch or in the bank."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cosda.errors import CosdaError
from cosda.models.architecture import Architecture
from cosda.models.artifact import Model, load, load_like
from cosda.models.experts import CLEAR, FAINT, DomainBank, Expert, Routing
from cosda.models.masks import add_masks
from cosda.models.network import Network, same_weights
from cosda.models.router import Gauge, new_profile
from cosda.models.wrap import wrap
from cosda.preprocessing import FEATURE_VECTORS
from tiny import CLASSES, SEEN, SIDE, WIDTH, tiny_network

NAMES = ("one", "two", "three", "four")
KINDS = ("batch_norm", "plain", "bare", "features", "late")


def images_of(place: int, count: int = 30, features: bool = False, seed: int = 0) -> Tensor:
    """Images of a domain, which its brightness and contrast tell from others."""
    rng = torch.Generator().manual_seed(100 * seed + place)
    shape = (count, WIDTH) if features else (count, 3, SIDE, SIDE)
    return torch.randn(shape, generator=rng) * (0.4 + 0.1 * place) + 1.5 * place - 2


def base_network(kind: str) -> Network:
    if kind == "bare":  # not a single normalisation layer
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        return Network(encoder, nn.Linear(32, 6), nn.Linear(6, len(CLASSES))).eval()
    return tiny_network("batch_norm" if kind == "late" else kind).eval()


def adapted(base: Network, place: int, late: bool = False) -> Network:
    """Another network near the base; that of a late bank has the same encoder."""
    network, rng = copy.deepcopy(base), torch.Generator().manual_seed(place)
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if value.is_floating_point() and not (late and name.startswith("encoder.")):
                value.add_(0.2 * value.abs().mean() * torch.randn(value.shape, generator=rng))
    return network


def make_bank(kind: str = "batch_norm", count: int = 3, base: Network | None = None, bits: int = 4) -> DomainBank:
    """A bank of so many domains; the first is the base's."""
    base, late = base or base_network(kind), kind == "late"
    gauge, features = Gauge(base.encoder, late), kind == "features"
    base.profile = new_profile(NAMES[0], gauge(images_of(0, features=features)), (), gauge.late)
    bank = DomainBank(base, (), late)
    for place in range(1, count):
        bank = bank.with_expert(new_expert(bank, place, features, bits))
    return bank


def new_expert(bank: DomainBank, place: int, features: bool = False, bits: int = 4, name: str = "") -> Expert:
    seen = bank.gauge(images_of(place, features=features))
    profile = new_profile(name or NAMES[place], seen, bank.profiles, bank.gauge.late)
    return Expert.make(adapted(bank.base, place, bank.late), bank.base, bits, profile)


def mixed_batch(kind: str, count: int = 3, each: int = 4) -> tuple[Tensor, list[int]]:
    """Images of all domains in turn, and where they come from."""
    parts = [images_of(place, each, kind == "features", seed=1) for place in range(count)]
    return torch.stack(parts, dim=1).flatten(0, 1), [place for _ in range(each) for place in range(count)]


def routing_of(bank: DomainBank, images: Tensor) -> Routing:
    return bank.route(bank.gauge(images))


def same_answers(left: Network, right: Network, images: Tensor) -> bool:
    first, second = left(images), right(images)
    return torch.equal(first.logits, second.logits) and torch.equal(first.features, second.features)


# --- Answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_is_answered_by_the_expert_of_its_domain(kind: str) -> None:
    """To the bit where nothing is folded; the bits of folded layers are those of a sum in another order."""
    bank = make_bank(kind)
    assert bank.known == ("one", "two", "three")
    images, places = mixed_batch(kind)
    shares = routing_of(bank, images).shares
    assert shares.argmax(dim=1).tolist() == places
    assert bool((shares.max(dim=1).values == 1).all()), "domains so far apart are clear"
    answer = bank(images)
    for place, name in enumerate(bank.known):
        rows = [row for row, where in enumerate(places) if where == place]
        wanted = bank.expert(name).eval()(images[rows])
        if kind == "batch_norm":
            torch.testing.assert_close(answer.logits[rows], wanted.logits, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(answer.features[rows], wanted.features, rtol=1e-4, atol=1e-5)
        else:
            assert torch.equal(answer.logits[rows], wanted.logits)
            assert torch.equal(answer.features[rows], wanted.features)
    experts = [bank.expert(name).eval()(images).logits for name in bank.known]
    assert not any(torch.allclose(experts[0], other, atol=1e-2) for other in experts[1:]), "experts are others"


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_does_not_depend_on_the_batch(kind: str) -> None:
    bank = make_bank(kind)
    images, _ = mixed_batch(kind)
    images = torch.cat([images, (images[:3] + images[1:4]) / 2, images[:2] + 50])  # unclear ones and unknown ones too
    whole, routing = bank(images), routing_of(bank, images)
    assert bool(routing.unknown[-2:].all())
    orders: list[Iterable[int]] = [[row] for row in range(len(images))]
    orders += [range(len(images) - 1, -1, -1), [3, 3, 1], range(0, len(images), 2)]
    for order in orders:
        rows = list(order)
        part, where = bank(images[rows]), routing_of(bank, images[rows])
        torch.testing.assert_close(part.logits, whole.logits[rows], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(part.features, whole.features[rows], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(where.posterior, routing.posterior[rows], rtol=1e-4, atol=1e-6)
        assert torch.equal(where.unknown, routing.unknown[rows])
        assert torch.equal(part.logits.argmax(dim=1), whole.logits[rows].argmax(dim=1))


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_batch_has_an_empty_answer_and_leaves_no_trace(kind: str) -> None:
    bank, untouched = make_bank(kind), make_bank(kind)
    images, _ = mixed_batch(kind)
    empty = bank(images[:0])
    assert empty.logits.shape == (0, 3)
    assert empty.features.shape == (0, 6)
    assert same_answers(bank, untouched, images)


def test_an_unclear_image_is_answered_by_the_mean_of_probabilities() -> None:
    bank = make_bank("plain")
    images, _ = mixed_batch("plain")
    shares = torch.tensor([[0.5, 0.3, 0.2], [0.0, 0.25, 0.75], [0.0, 1.0, 0.0]], dtype=torch.float64)
    said = [bank.expert(name).eval()(images[:3]) for name in bank.known]
    got = bank.answer(images[:3], shares)
    for row in range(3):
        probabilities = sum(float(shares[row, k]) * said[k].logits[row].softmax(dim=0) for k in range(3))
        features = sum(float(shares[row, k]) * said[k].features[row] for k in range(3))
        torch.testing.assert_close(got.logits[row].softmax(dim=0), probabilities, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(got.features[row], features, rtol=1e-5, atol=1e-6)
    assert torch.equal(got.logits[2], said[1].logits[2]), "an expert that answers alone answers with its own logits"


def test_shares_are_all_or_nothing_where_the_posterior_is_clear() -> None:
    posterior = [
        [0.95, 0.03, 0.02],  # clear
        [CLEAR, 0.1, 0.0],  # just so
        [0.8, 0.195, 0.005],  # not; the last is faint
        [0.03, 0.95, 0.02],  # clear, but like nothing known: the base has half
        [0.005, 0.99, 0.005],  # the same, and the others are faint
    ]
    unknown = torch.tensor([False, False, False, True, True])
    shares = Routing(torch.tensor(posterior, dtype=torch.float64), unknown).shares
    assert FAINT == 0.01
    wanted = [[1, 0, 0], [1, 0, 0], [0.8 / 0.995, 0.195 / 0.995, 0], [0.515, 0.475, 0.01], [0.5, 0.5, 0]]
    torch.testing.assert_close(shares, torch.tensor(wanted, dtype=torch.float64))


# --- The base and the others stay as they are -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_base_never_changes(kind: str) -> None:
    base = base_network(kind)
    before = copy.deepcopy(base)
    bank = make_bank(kind, base=base)
    images, _ = mixed_batch(kind)
    bank(images)
    bank.expert("two").requires_grad_(True)(images).logits.sum().backward()
    with torch.no_grad():
        bank.expert("three").classifier.bias.add_(1)  # type: ignore[union-attr, operator]
    bank.train()(images)
    assert same_weights(base, before)
    assert same_weights(bank.base, before)
    assert bank.base is base
    assert not any(module.training for module in bank.modules())


def test_one_expert_more_leaves_all_others_as_they_were() -> None:
    three, four = make_bank(count=3), make_bank(count=4)
    assert four.known == NAMES
    for name in three.known:
        assert same_weights(three.expert(name), four.expert(name))
    for image in mixed_batch("batch_norm")[0].split(1):
        alone = [bool(routing_of(bank, image).shares.max() == 1) for bank in (three, four)]
        assert alone == [True, True]
        assert same_answers(three, four, image)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dropped", ["two", "three", "four"])
def test_an_expert_that_is_taken_out_leaves_the_rest_as_it_was(kind: str, dropped: str) -> None:
    bank = make_bank(kind, 4)
    rest = bank.without(dropped)
    assert rest.known == tuple(name for name in NAMES if name != dropped)
    images, places = mixed_batch(kind, 4)
    for image, place in zip(images.split(1), places, strict=True):
        if NAMES[place] != dropped:
            assert same_answers(bank, rest, image)
    assert bank.known == NAMES, "the bank itself keeps it"


@pytest.mark.parametrize("kind", KINDS)
def test_without_the_last_expert_it_is_the_bank_before_it(kind: str) -> None:
    three, four = make_bank(kind, 3), make_bank(kind, 4)
    images, _ = mixed_batch(kind, 4)  # those of the fourth domain go somewhere else now
    assert not same_answers(three, four, images)
    assert same_answers(three, four.without("four"), images)
    assert torch.equal(routing_of(three, images).posterior, routing_of(four.without("four"), images).posterior)


def test_an_expert_of_a_known_domain_takes_the_place_of_the_old_one() -> None:
    bank = make_bank(count=3)
    other = bank.with_expert(new_expert(bank.without("two"), 3, name="two"))
    assert sorted(other.known) == ["one", "three", "two"]
    assert other.known[0] == "one"
    assert not same_weights(other.expert("two"), bank.expert("two"))
    assert same_weights(other.expert("three"), bank.expert("three"))


def test_the_bases_domain_and_unknown_ones_cannot_be_taken_out() -> None:
    bank = make_bank()
    with pytest.raises(CosdaError, match="'one' is what the model was trained on"):
        bank.without("one")
    with pytest.raises(CosdaError, match=r"no expert for a domain 'tow'\. Did you mean 'two'\?"):
        bank.without("tow")
    with pytest.raises(CosdaError, match="Known: one, two, three"):
        bank.for_domain("elsewhere")


@pytest.mark.parametrize("kind", ["batch_norm", "bare"])
def test_without_a_profile_of_the_base_it_answers_what_resembles_no_expert(kind: str) -> None:
    bank = make_bank(kind, 3)
    bank.base.profile = None
    bank = DomainBank(bank.base, bank.experts)
    assert bank.known == ("source", "two", "three")
    images, places = mixed_batch(kind)
    shares = routing_of(bank, images).shares
    assert shares.argmax(dim=1).tolist() == places
    alone = bank.without("two").without("three")
    torch.testing.assert_close(alone(images).logits, bank.base(images).logits, rtol=1e-4, atol=1e-5)
    assert routing_of(alone, images).posterior.tolist() == [[1.0]] * len(images)


def test_a_bank_with_a_frozen_encoder_cannot_use_a_profile_of_early_statistics() -> None:
    base = base_network("batch_norm")
    make_bank("batch_norm", 1, base)
    assert base.profile is not None
    assert DomainBank(base, ()).profile is base.profile
    late = DomainBank(base, (), late=True)
    assert late.profile is None
    assert late.known == ("one",)


# --- Memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["batch_norm", "plain", "late"])
def test_a_budget_of_one_expert_gives_the_same_bits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bank = make_bank(kind, 4)
    images, _ = mixed_batch(kind, 4)
    made: list[int] = []
    whole = DomainBank._materialise

    def counted(self: DomainBank, place: int) -> Network:
        made.append(place)
        return whole(self, place)

    monkeypatch.setattr(DomainBank, "_materialise", counted)
    wanted = bank(images).logits
    bank(images)
    assert sorted(made) == [0, 1, 2, 3], "each once, and then they are ready"
    made.clear()
    small = bank.keep_ready(1)
    for _ in range(2):
        assert torch.equal(small(images).logits, wanted)
        assert len(small._ready.networks) == 1
    assert len(made) == 7, "the one that was ready is asked first"
    made.clear()
    for row in (0, 1, 0, 4):
        bank.keep_ready(2)(images[row : row + 1])
    with pytest.raises(CosdaError, match="at least one expert"):
        bank.keep_ready(0)


def test_experts_that_are_ready_are_folded() -> None:
    bank, images = make_bank("batch_norm"), mixed_batch("batch_norm")[0]
    bank(images[:1])
    [ready] = bank._ready.networks.values()
    assert not [layer for layer in ready.encoder.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert [layer for layer in bank.encoder.modules() if isinstance(layer, nn.BatchNorm2d)]


def test_the_least_recently_used_expert_goes_first() -> None:
    bank = make_bank("plain", 4).keep_ready(2)
    images, _ = mixed_batch("plain", 4)
    for row in (0, 1, 0, 2):
        bank(images[row : row + 1])
    assert list(bank._ready.networks) == [0, 2]


def test_several_threads_ask_one_bank() -> None:
    bank = make_bank("plain", 4).keep_ready(2)
    batches = [mixed_batch("plain", 4)[0].roll(shift, dims=0) for shift in range(6)]
    wanted = [make_bank("plain", 4)(batch).logits for batch in batches]
    meet, found = threading.Barrier(6), {}

    def ask(number: int) -> None:
        meet.wait()
        for _ in range(3):
            with torch.inference_mode():
                found[number] = bank(batches[number]).logits

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[number], wanted[number]) for number in range(6))


def test_an_expert_that_was_made_in_inference_mode_serves_outside_of_it() -> None:
    bank, images = make_bank(), mixed_batch("batch_norm")[0]
    with torch.inference_mode():
        wanted = bank(images.clone()).logits
    asked = images.clone().requires_grad_(True)
    answer = bank(asked).logits
    assert torch.equal(answer.detach(), wanted)
    answer.sum().backward()
    assert asked.grad is not None


@pytest.mark.parametrize("kind", KINDS)
def test_copies(kind: str) -> None:
    """What torch cannot pickle is the weight norm of cosda's own classifier."""
    bank = make_bank(kind)
    images, _ = mixed_batch(kind)
    wanted = bank(images).logits
    pickled = [pickle.loads(pickle.dumps(bank))] if kind in ("plain", "bare") else []
    for other in (copy.deepcopy(bank), *pickled):
        assert other.known == bank.known
        assert torch.equal(other(images).logits, wanted)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        assert other.base.classifier is other.classifier, "the weights of the copy are those of its own base"
    assert torch.equal(bank(images).logits, wanted)


def test_moving_the_bank_moves_its_experts() -> None:
    bank, images = make_bank("plain"), mixed_batch("plain")[0]
    wanted = bank(images).logits
    bank.to(torch.float64)
    got = bank(images.double()).logits
    assert got.dtype == torch.float64
    torch.testing.assert_close(got.float(), wanted, rtol=1e-4, atol=1e-5)


# --- Masks ------------------------------------------------------------------------------------------------------------


def masked_base(domains: tuple[str, ...] = NAMES) -> Network:
    torch.manual_seed(0)
    return add_masks(base_network("batch_norm"), 6, domains).eval()


def test_a_network_with_masks_needs_no_domain_in_a_bank() -> None:
    bank = make_bank(base=masked_base())
    assert not bank.needs_domain
    images, places = mixed_batch("batch_norm")
    answer = bank(images).logits
    for row, place in enumerate(places):
        wanted = bank.expert(NAMES[place]).for_domain(NAMES[place]).eval()(images[row : row + 1]).logits
        torch.testing.assert_close(answer[row : row + 1], wanted, rtol=1e-4, atol=1e-5)
        assert torch.equal(bank.for_domain(NAMES[place])(images[row : row + 1]).logits, wanted)


def test_masks_of_a_base_without_a_profile_begin_with_its_own_domain() -> None:
    bank = make_bank(base=masked_base())
    bank.base.profile = None
    bank = DomainBank(bank.base, bank.experts)
    assert bank.known == ("one", "two", "three")
    images, _ = mixed_batch("batch_norm")
    wanted = bank.base.for_domain("one")(images[:1]).logits
    torch.testing.assert_close(bank(images[:1]).logits, wanted, rtol=1e-4, atol=1e-5)


def test_masks_may_be_added_beside_experts() -> None:
    bank = make_bank(base=masked_base(NAMES[:3]))
    grown = bank.with_domains(("four",), torch.Generator().manual_seed(0))
    assert isinstance(grown, DomainBank)
    assert grown.domains == NAMES
    assert bank.with_domains(("two",), torch.Generator()) is bank
    images, _ = mixed_batch("batch_norm")
    assert same_answers(bank, grown, images)


# --- As a plain module ------------------------------------------------------------------------------------------------


def model_of(bank: Network, encoder: str = "tiny") -> Model:
    preprocessing = FEATURE_VECTORS if isinstance(bank.encoder, nn.Identity) else SEEN
    return Model(bank, Architecture(encoder, 6, len(CLASSES)), CLASSES, preprocessing)


@pytest.mark.parametrize("kind", KINDS)
def test_the_module_of_a_bank_routes_and_that_of_a_domain_is_its_expert(kind: str) -> None:
    bank = make_bank(kind)
    model, images = model_of(bank), mixed_batch(kind)[0]
    assert torch.equal(model.module()(images), bank(images).logits)
    expert = model.module("two")
    torch.testing.assert_close(expert(images), bank.expert("two").eval()(images).logits, rtol=1e-5, atol=1e-6)
    base = model.module("one")
    torch.testing.assert_close(base(images), bank.base(images).logits, rtol=1e-5, atol=1e-6)
    assert torch.equal(copy.deepcopy(model.module())(images), bank(images).logits)


class Mine(nn.Module):
    """A classifier of the user's own, with a softmax at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.top = nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.top(self.features(images).mean(dim=(2, 3))).softmax(dim=1)


def mine() -> Mine:
    torch.manual_seed(0)
    return Mine().eval()


def wrapped() -> Model:
    model = wrap(mine(), CLASSES, preprocessing=SEEN)
    model.network = make_bank(base=model.network)
    return model


def test_the_module_of_a_wrapped_model_is_the_users_own_for_one_domain_and_routes_without() -> None:
    model, images = wrapped(), mixed_batch("batch_norm")[0]
    assert isinstance(model.network, DomainBank)
    assert torch.equal(pickle.loads(pickle.dumps(model.module()))(images), model.network(images).logits)
    own = model.module("one")
    assert isinstance(own, Mine)
    assert same_weights(own, mine())
    expert = model.module("two")
    assert isinstance(expert, Mine)
    wanted = model.network.expert("two").eval()(images).logits.softmax(dim=1)
    torch.testing.assert_close(expert(images), wanted, rtol=1e-5, atol=1e-6)


# --- Model folders ----------------------------------------------------------------------------------------------------


@pytest.fixture
def model() -> Model:
    """A bank of a model that cosda can build by itself."""
    torch.manual_seed(0)
    architecture = Architecture("small", bottleneck=6, classes=3)
    network = architecture.build()
    return Model(make_bank(base=network.eval()), architecture, CLASSES, SEEN, [{"step": "source"}])


@pytest.fixture
def folder(model: Model, tmp_path: Path) -> Path:
    return model.save(tmp_path / "bank")


FILES = {
    *("model.json", "README.md", "encoder.safetensors", "head.safetensors"),
    *("profile-0.safetensors", "profile-1.safetensors", "profile-2.safetensors"),
    *("expert-1.safetensors", "expert-2.safetensors"),
}


def bank_of(model: Model) -> DomainBank:
    assert isinstance(model.network, DomainBank)
    return model.network


def test_a_bank_is_saved_and_loaded_bit_by_bit(model: Model, folder: Path, tmp_path: Path) -> None:
    images, _ = mixed_batch("batch_norm")
    again = load(folder)
    bank = bank_of(again)
    assert bank.known == ("one", "two", "three")
    assert same_answers(bank, model.network, images)
    assert {path.name for path in folder.iterdir()} == FILES
    other = again.save(tmp_path / "other")
    assert all((folder / name).read_bytes() == (other / name).read_bytes() for name in FILES)
    assert again.key == model.key


@pytest.mark.parametrize("kind", ["features", "late", "masked"])
def test_other_kinds_of_banks_are_saved_and_loaded_too(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder, width = ("identity", WIDTH) if kind == "features" else ("small", None)
    architecture = Architecture(encoder, 6, 3, width, domains=NAMES if kind == "masked" else ())
    bank = make_bank("batch_norm" if kind == "masked" else kind, base=architecture.build().eval())
    preprocessing = FEATURE_VECTORS if kind == "features" else SEEN
    again = bank_of(load(Model(bank, architecture, CLASSES, preprocessing).save(tmp_path / "bank")))
    assert again.late == (kind == "late")
    assert same_answers(again, bank, mixed_batch(kind)[0])


def test_a_wrapped_bank_is_loaded_with_the_users_code(tmp_path: Path) -> None:
    model = wrapped()
    path = model.save(tmp_path / "bank")
    images, _ = mixed_batch("batch_norm")
    assert same_answers(load(path, build=Mine).network, model.network, images)
    assert same_answers(load_like(path, wrap(mine(), CLASSES, preprocessing=SEEN)).network, model.network, images)
    with pytest.raises(CosdaError, match="build="):
        load(path)


def test_experts_are_read_when_they_are_needed(folder: Path) -> None:
    bank = bank_of(load(folder))
    images, places = mixed_batch("batch_norm")
    first, second = (images[places.index(place)][None] for place in (0, 1))
    (folder / "expert-1.safetensors").rename(folder / "elsewhere")
    assert bool(bank(first).logits.isfinite().all()), "an image of another domain does not need it"
    with pytest.raises(CosdaError, match=r"expert-1\.safetensors cannot be read"):
        bank(second)
    (folder / "elsewhere").rename(folder / "expert-1.safetensors")
    assert bool(bank(second).logits.isfinite().all())


@pytest.mark.parametrize("trouble", ["damaged", "cut", "exchanged"])
def test_a_damaged_expert_is_a_clear_error_when_it_is_used(trouble: str, folder: Path) -> None:
    expert = folder / "expert-2.safetensors"
    content = bytearray(expert.read_bytes())
    content[len(content) // 2] ^= 1
    new = {"damaged": bytes(content), "cut": bytes(content[:-9])}
    expert.write_bytes(new.get(trouble, (folder / "expert-1.safetensors").read_bytes()))
    bank = bank_of(load(folder))
    assert bank.known == ("one", "two", "three")
    bank.expert("two")
    with pytest.raises(CosdaError, match=r"expert-2\.safetensors is not the file .* damaged, cut short or exchanged"):
        bank.expert("three")


@pytest.mark.parametrize("name", ["profile-0", "profile-2"])
@pytest.mark.parametrize("trouble", ["damaged", "missing"])
def test_a_damaged_profile_is_a_clear_error_at_once(name: str, trouble: str, folder: Path) -> None:
    file = folder / f"{name}.safetensors"
    if trouble == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    reason = "cannot be read" if trouble == "missing" else "is not the file"
    with pytest.raises(CosdaError, match=rf"{name}\.safetensors {reason}") as caught:
        load(folder)
    assert "expert" not in str(caught.value).partition(name)[0].rpartition("/")[2]


@pytest.mark.parametrize("change", [{"experts": {}}, {"experts": {"late": False, "experts": [{}]}}, {"sha256": {}}])
def test_a_damaged_description_is_a_clear_error(change: dict[str, Any], folder: Path) -> None:
    description = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(description | change))
    with pytest.raises(CosdaError, match=r"damaged|is not the file"):
        load(folder)


def test_files_that_have_not_changed_are_linked_between_folders(folder: Path, tmp_path: Path) -> None:
    model = load(folder)
    bank = bank_of(model)
    model.network = bank.with_expert(new_expert(bank, 3))
    linked = model.save(tmp_path / "linked", link=True)
    assert {path.name for path in linked.iterdir()} == FILES | {"expert-3.safetensors", "profile-3.safetensors"}
    assert all((linked / name).samefile(folder / name) for name in FILES - {"model.json", "README.md"})
    copied = model.save(tmp_path / "copied")
    assert not any((copied / name).samefile(folder / name) for name in FILES)
    shutil.rmtree(folder)
    assert bank_of(load(linked)).known == NAMES


def test_a_bank_is_written_whole_or_not_at_all(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    model.network = bank_of(model).without("two")
    write = Path.write_bytes

    def failing(path: Path, content: bytes) -> int:
        if path.name.startswith("expert"):
            raise OSError(28, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", failing)
    with pytest.raises(CosdaError, match="No space left"):
        model.save(folder, overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with pytest.raises(CosdaError, match="No space left"):
        model.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("change", ["dropped", "replaced"])
def test_a_loaded_bank_goes_on_when_its_own_folder_is_written_anew(change: str, folder: Path) -> None:
    """Its files are numbered, and after a change other experts have their numbers."""
    model, images = load(folder), mixed_batch("batch_norm")[0]
    bank = bank_of(model)
    model.network = bank.without("two") if change == "dropped" else bank.with_expert(new_expert(bank, 1))
    wanted = copy.deepcopy(model.network)(images).logits
    model.save(folder, overwrite=True)
    assert torch.equal(model.network(images).logits, wanted)
    assert torch.equal(load(folder).network(images).logits, wanted)
    names = {path.name for path in folder.iterdir()}
    gone = {"expert-2.safetensors", "profile-2.safetensors"} if change == "dropped" else set()
    assert names == FILES - gone


def test_the_key_of_a_model_names_its_experts_too(model: Model) -> None:
    bank = bank_of(model)
    others = [
        bank.base,
        bank.without("two"),
        bank.without("three"),
        bank.with_expert(new_expert(bank, 3)),
        make_bank(base=copy.deepcopy(bank.base), bits=8),
    ]
    keys = [Model(each, model.architecture, CLASSES, SEEN).key for each in (bank, *others)]
    assert len(set(keys)) == len(keys)
    again = bank.with_expert(new_expert(bank, 3)).without("four")
    assert Model(again, model.architecture, CLASSES, SEEN).key == keys[0]


def test_only_a_frozen_bank_may_get_another_encoder() -> None:
    with pytest.raises(CosdaError, match=r"expert of 'two' has an encoder of its own.*--freeze-encoder"):
        make_bank("batch_norm").with_encoder(nn.Identity())
    bank, images = make_bank("late"), mixed_batch("late")[0]
    heads = bank.with_encoder(nn.Identity())
    with torch.no_grad():
        features = bank.encoder(images)
    assert torch.equal(heads(features).logits, bank(images).logits)
