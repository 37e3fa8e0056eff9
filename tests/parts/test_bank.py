"""The bank and the search, against slow loops, with duplicates, in half precision, and within its memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from cosda.errors import CosdaError
from cosda.models.bn_folding import evaluating
from cosda.parts import bank as module
from cosda.parts.bank import GROUP, Bank, nearest
from cosda.types import Output
from tiny import tiny_loader, tiny_network


def rows(count: int, width: int = 6, seed: int = 0) -> Tensor:
    return F.normalize(torch.randn(count, width, generator=torch.Generator().manual_seed(seed)))


def slow_nearest(queries: Tensor, keys: Tensor, count: int, own: list[int]) -> list[list[int]]:
    found = []
    for query, mine in zip(queries.tolist(), own, strict=True):
        similarity = [sum(a * b for a, b in zip(query, key, strict=True)) for key in keys.tolist()]
        others = [place for place in range(len(similarity)) if place != mine]
        found.append(sorted(others, key=lambda place: -similarity[place])[:count])
    return found


@pytest.mark.parametrize("size", [7, GROUP, GROUP + 1, 5 * GROUP + 3])
@pytest.mark.parametrize("block_bytes", [1, 4096, 2**20])
def test_nearest_equals_a_full_sort(size: int, block_bytes: int) -> None:
    keys = rows(size)
    own = torch.tensor([0, 3, size - 1])
    found = nearest(keys[own], keys, 4, own, block_bytes)
    assert found.tolist() == slow_nearest(keys[own], keys, 4, own.tolist())


def test_without_own_a_query_finds_itself() -> None:
    keys = rows(40)
    assert torch.equal(nearest(keys, keys, 1)[:, 0], torch.arange(40))


def test_its_own_index_is_never_a_neighbour_even_among_duplicates() -> None:
    """Trap B25: dropping the first hit would keep the image and lose one of its twins."""
    keys = rows(1).expand(100, -1).contiguous()
    own = torch.arange(100)
    for count in (1, 5, 99, 500):
        found = nearest(keys, keys, count, own)
        assert found.shape == (100, min(count, 99))
        assert not (found == own[:, None]).any()
        assert all(len(set(row)) == len(row) for row in found.tolist())


def test_a_bank_of_one_image_has_no_neighbours() -> None:
    assert nearest(rows(1), rows(1), 3, torch.tensor([0])).shape == (1, 0)


class _Largest(TorchDispatchMode):
    """The largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        given = {a.untyped_storage().data_ptr() for a in args if isinstance(a, Tensor)}
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, Tensor) and part.untyped_storage().data_ptr() not in given:
                self.bytes = max(self.bytes, part.untyped_storage().nbytes())
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.half])
@pytest.mark.parametrize("queries", [8, 3000])
def test_a_search_takes_no_more_memory_than_the_block(dtype: torch.dtype, queries: int) -> None:
    """Never queries × bank, and no float copy of a half bank."""
    keys, block = rows(20_000, 16).to(dtype), 2**20
    own = torch.arange(queries)
    with _Largest() as seen:
        nearest(keys[:queries], keys, 4, own, block)
    assert keys.nbytes > block / 2
    assert 0 < seen.bytes <= block


def test_block_size_does_not_change_what_is_found() -> None:
    keys = rows(3000, 16)
    own = torch.arange(0, 3000, 50)
    wide = nearest(keys[own], keys, 6, own)
    assert torch.equal(wide, nearest(keys[own], keys, 6, own, block_bytes=20_000))


def test_a_half_bank_finds_nearly_the_same() -> None:
    keys = rows(2000, 16)
    own = torch.arange(200)
    full, half = nearest(keys[own], keys, 5, own), nearest(keys[own].half(), keys.half(), 5, own)
    assert (full == half).float().mean() > 0.97


def test_neighbours_of_neighbours_keep_their_shape() -> None:
    bank = Bank(rows(30), rows(30))
    near = bank.neighbours(torch.tensor([4, 9]), 3)
    extended = bank.neighbours(near, 2)
    assert extended.shape == (2, 3, 2)
    for i, row in enumerate(near.tolist()):
        for j, place in enumerate(row):
            assert extended[i, j].tolist() == slow_nearest(bank.features[place][None], bank.features, 2, [place])[0]


@pytest.mark.parametrize("kind", ["batch_norm", "features"])
def test_build_is_one_eval_pass_by_index_and_leaves_the_network_alone(kind: str) -> None:
    network, images = tiny_network(kind).train(), tiny_loader(kind, count=20, batch_size=8)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    bank = Bank.build(network, images, "test")
    assert network.training
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    with evaluating(network):
        for batch in images.sweep("test"):
            output = network(batch.images)
            torch.testing.assert_close(bank.features[batch.index], F.normalize(output.features))
            torch.testing.assert_close(bank.scores[batch.index], output.logits.softmax(1))
    assert not bank.features.is_inference()
    assert Bank.build(network, images, dtype=torch.half).scores.dtype == torch.half


def test_update_overwrites_or_averages_and_rows_stay_unit_vectors() -> None:
    bank = Bank(rows(6), rows(6).softmax(1))
    old, index, seen = bank.features.clone(), torch.tensor([1, 4]), Output(3 * rows(2, seed=1), rows(2, seed=2))
    scores = bank.scores.clone()
    bank.update(index, seen, keep=0.8)
    mixed = 0.8 * old[index] + 0.2 * F.normalize(seen.features)
    torch.testing.assert_close(bank.features[index], F.normalize(mixed))
    torch.testing.assert_close(bank.scores[index], 0.8 * scores[index] + 0.2 * seen.logits.softmax(1))
    torch.testing.assert_close(bank.features.norm(dim=1), torch.ones(6))
    others = torch.tensor([0, 2, 3, 5])
    assert torch.equal(bank.features[others], old[others])
    bank.update(index, seen)
    torch.testing.assert_close(bank.features[index], F.normalize(seen.features))
    torch.testing.assert_close(bank.recall(index).logits.softmax(1), seen.logits.softmax(1))


def test_averaged_rows_may_stay_shorter_and_are_then_found_less_often() -> None:
    """Trap B12: the authors of CoSDA do not bring averaged rows back to length 1."""
    old, new = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]]), torch.tensor([[0.0, 2.0]])
    asked, seen = torch.tensor([0]), Output(new, torch.zeros(1, 2))
    found = {}
    for unit in (True, False):
        bank = Bank(old.clone(), torch.full((3, 2), 0.5))
        bank.update(torch.tensor([2]), seen, keep=0.5, unit=unit)
        row = torch.tensor([0.4, 0.8])  # half of (0.8, 0.6) and half of (0, 1)
        torch.testing.assert_close(bank.features[2], F.normalize(row, dim=0) if unit else row)
        bank.features[1] = torch.tensor([0.41, 0.9])
        found[unit] = bank.neighbours(asked, 1).item()
    assert found == {True: 2, False: 1}


def test_state_is_a_copy_that_survives() -> None:
    bank = Bank(rows(6), rows(6))
    again = Bank.from_state(bank.state_dict())
    bank.features.zero_()
    assert torch.equal(again.features, rows(6))


def test_faiss_finds_the_same() -> None:
    pytest.importorskip("faiss")
    keys = rows(500, 16)
    own = torch.arange(100)
    assert torch.equal(nearest(keys[own], keys, 5, own, backend="faiss"), nearest(keys[own], keys, 5, own))
    assert torch.equal(nearest(keys[own], keys, 5, backend="faiss"), nearest(keys[own], keys, 5))
    twins = rows(1).expand(100, -1).contiguous()
    found = nearest(twins, twins, 3, own, backend="faiss")
    assert found.shape == (100, 3)
    assert not (found == own[:, None]).any()


def test_faiss_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = rows(10)
    with pytest.raises(CosdaError, match="float32"):
        nearest(keys.half(), keys.half(), 2, backend="faiss")
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(CosdaError, match="pip install"):
        nearest(keys, keys, 2, backend="faiss")
    monkeypatch.setattr(module, "FAISS_FROM", 5)
    assert torch.equal(nearest(keys, keys, 2, backend="auto"), nearest(keys, keys, 2))
