"""Weights as packed differences: against a slow loop, within bounds, and what has to be exact is exact."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from cosda.errors import CosdaError
from cosda.models.masks import add_masks
from cosda.models.packing import CLIPS, pack, quantise, unpack
from tiny import tiny_network

ALL_BITS = (2, 4, 8)


def rows(*shape: int, seed: int = 0, scale: float = 0.01) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale


def slow_quantise(row: list[float], bits: int) -> tuple[list[int], float]:
    """The codes of one row, and the scale of those that are tried that errs least, number by number."""
    middle, most = (2**bits - 1) / 2, 2**bits - 1
    widest = max(abs(value) for value in row) / middle
    best, found = float("inf"), ([], 0.0)
    for clip in CLIPS[bits]:
        scale = float(np.float16(widest * clip))
        codes = [int(min(most, max(0, np.round(value / scale + middle)))) for value in row]
        error = sum(((code - middle) * scale - value) ** 2 for code, value in zip(codes, row, strict=True))
        if error < best:
            best, found = error, (codes, scale)
    return found


def slow_codes(stored: Tensor, bits: int, count: int) -> list[int]:
    """The codes in a deflated tensor, the first in the lowest bits of the first byte."""
    content, places = zlib.decompress(bytes(stored.tolist())), range(8 // bits)
    codes = [(byte >> (bits * place)) % 2**bits for byte in content for place in places]
    return codes[:count]


@pytest.mark.parametrize("bits", ALL_BITS)
def test_codes_and_scales_are_those_of_a_slow_loop(bits: int) -> None:
    given = rows(5, 37)
    codes, scales = quantise(given, bits)
    for number, row in enumerate(given.tolist()):
        wanted, scale = slow_quantise(row, bits)
        assert codes[number].tolist() == wanted
        assert float(scales[number]) == scale


@pytest.mark.parametrize("bits", ALL_BITS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 3, 3, 3), (7, 1, 1, 1), (2, 9, 1)])
def test_what_is_unpacked_is_the_base_and_scale_times_code(bits: int, shape: tuple[int, ...]) -> None:
    """Also where the number of weights does not fill the last byte."""
    base = {"w": rows(*shape, seed=1, scale=1.0).float()}
    adapted = {"w": base["w"] + rows(*shape).float()}
    packed = pack(adapted, base, bits)
    assert set(packed) == {"w:codes", "w:scales"}
    got = unpack(packed, base, bits)["w"]
    assert got.shape == torch.Size(shape)
    codes = iter(slow_codes(packed["w:codes"], bits, base["w"].numel()))
    middle = (2**bits - 1) / 2
    for old, new, scale in zip(base["w"].flatten(1), got.flatten(1), packed["w:scales"].tolist(), strict=True):
        wanted = [float(value) + (next(codes) - middle) * scale for value in old]
        assert new.tolist() == pytest.approx(wanted, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("bits", ALL_BITS)
def test_no_weight_errs_by_more_than_its_row_allows(bits: int) -> None:
    """Rows whose differences are of quite other sizes; each has a scale of its own."""
    size = torch.tensor([1e-4, 1e-2, 1.0, 30.0], dtype=torch.float64)[:, None]
    difference = rows(4, 300, scale=1.0) * size
    base = {"w": torch.zeros(4, 300, dtype=torch.float64)}
    error = (unpack(pack({"w": difference}, base, bits), base, bits)["w"] - difference).abs()
    widest = difference.abs().amax(dim=1)
    half_a_step = widest / (2**bits - 1) * 1.01
    rounded = 2**-25 * 2**bits / 2  # of a small scale in 16 bits
    assert (error.amax(dim=1) <= widest * (1 - min(CLIPS[bits])) + half_a_step + rounded).all()
    means = error.square().mean(dim=1).sqrt() / difference.square().mean(dim=1).sqrt()
    assert (means < {2: 0.5, 4: 0.15, 8: 0.02}[bits]).all()
    finer = [level for level in ALL_BITS if level > bits]
    for level in finer:
        better = (unpack(pack({"w": difference}, base, level), base, level)["w"] - difference).square().sum()
        assert better < error.square().sum()


def test_the_scale_that_errs_least_is_taken_and_not_the_widest() -> None:
    """One large value among many small ones: cutting it off errs less than coarse steps for all."""
    given = torch.cat([rows(1, 400), torch.full((1, 1), 0.06, dtype=torch.float64)], dim=1)
    codes, scales = quantise(given, 4)
    assert float(scales[0]) < 0.9 * 0.06 / 7.5
    assert codes[0, -1] == 15


@pytest.mark.parametrize("bits", ALL_BITS)
def test_what_did_not_change_is_left_out_and_exact(bits: int) -> None:
    base = {"same": rows(3, 4).float(), "w": rows(3, 4, seed=1).float(), "bias": rows(3).float()}
    adapted = {name: value.clone() for name, value in base.items()}
    adapted["w"][1] += 0.5
    packed = pack(adapted, base, bits)
    assert {key.partition(":")[0] for key in packed} == {"w"}
    got = unpack(packed, base, bits)
    assert torch.equal(got["same"], base["same"])
    assert torch.equal(got["bias"], base["bias"])
    assert torch.equal(got["w"][[0, 2]], base["w"][[0, 2]]), "rows that did not change are as they were"
    assert torch.allclose(got["w"][1], adapted["w"][1], atol=1e-3)
    assert pack(base, base, bits) == {}


def test_one_dimension_and_whole_numbers_are_kept_in_full() -> None:
    base = {"bias": rows(50, scale=1.0).float(), "count": torch.tensor(3), "gate": torch.tensor(0.5)}
    adapted = {
        "bias": base["bias"] + rows(50, seed=1).float(),
        "count": torch.tensor(2**40 + 1),
        "gate": torch.ones(()),
    }
    got = unpack(pack(adapted, base, 2), base, 2)
    assert torch.allclose(got["bias"], adapted["bias"], atol=0.05 * 2**-11)
    assert got["count"].item() == 2**40 + 1
    assert got["count"].dtype == torch.int64
    assert got["gate"].item() == 1


@pytest.mark.parametrize("size", [1e-8, 1e6])
def test_differences_that_sixteen_bits_cannot_hold_are_kept_in_more(size: float) -> None:
    base = {"bias": torch.zeros(9), "w": torch.zeros(3, 7)}
    adapted = {name: rows(*value.shape, scale=size).float() for name, value in base.items()}
    got = unpack(pack(adapted, base, 8), base, 8)
    assert torch.allclose(got["bias"], adapted["bias"], rtol=1e-5, atol=0)
    assert torch.allclose(got["w"], adapted["w"], rtol=0, atol=float(adapted["w"].abs().max()) / 250)


def test_a_variance_that_nearly_vanished_stays_positive_and_right() -> None:
    """A channel that the new domain leaves dark: its variance falls by four orders, and is divided by."""
    base = {"norm.running_var": torch.tensor([99.97, 40.0, 1.0, 250.0])}
    adapted = {"norm.running_var": torch.tensor([0.001, 0.01, 1.1, 2e-5])}
    got = unpack(pack(adapted, base, 4), base, 4)["norm.running_var"]
    assert torch.allclose(got, adapted["norm.running_var"], rtol=1e-2, atol=0)
    usual = {"norm.running_var": base["norm.running_var"] * torch.tensor([1.1, 0.8, 1.3, 0.5])}
    packed = pack(usual, base, 4)
    assert [(name, value.dtype) for name, value in packed.items()] == [("norm.running_var:difference", torch.float16)]
    assert torch.allclose(unpack(packed, base, 4)["norm.running_var"], usual["norm.running_var"], rtol=1e-2, atol=0)


@pytest.mark.parametrize("bits", ALL_BITS)
def test_the_adapted_network_comes_back_almost(bits: int) -> None:
    base, adapted = tiny_network(), tiny_network()
    with torch.no_grad():
        for value in adapted.state_dict().values():
            if value.is_floating_point():
                value.mul_(1 + 0.02 * torch.randn(value.shape, generator=torch.Generator().manual_seed(1)))
            else:
                value.add_(5)
    state = unpack(pack(adapted.state_dict(), base.state_dict(), bits), base.state_dict(), bits)
    other = tiny_network()
    other.load_state_dict(state)
    images = torch.randn(6, 3, 16, 16)
    wanted, got = (network.eval()(images).logits for network in (adapted, other))
    before = base.eval()(images).logits
    assert (got - wanted).norm() < {2: 0.9, 4: 0.15, 8: 0.01}[bits] * (before - wanted).norm()


# --- Masks ------------------------------------------------------------------------------------------------------------


def masked_state(domains: tuple[str, ...]) -> Mapping[str, Tensor]:
    torch.manual_seed(4)
    return add_masks(tiny_network("features"), 6, domains).state_dict()


def test_masks_are_exact() -> None:
    base = masked_state(("one", "two"))
    adapted = {name: value + 1e-4 if name == "masks.embedding" else value for name, value in base.items()}
    packed = pack(adapted, base, 2)
    assert set(packed) == {"masks.embedding:full"}
    assert torch.equal(unpack(packed, base, 2)["masks.embedding"], adapted["masks.embedding"])


def test_an_expert_of_a_small_table_of_masks_fits_a_table_that_has_grown() -> None:
    base = masked_state(("one", "two"))
    adapted = {name: value + 0.5 if name == "masks.embedding" else value for name, value in base.items()}
    packed = pack(adapted, base, 4)
    new = torch.randn(1, 6)
    grown = {**base, "masks.embedding": torch.cat([base["masks.embedding"], new])}
    got = unpack(packed, grown, 4)["masks.embedding"]
    assert torch.equal(got, torch.cat([adapted["masks.embedding"], new]))


# --- What is refused, and how large it is -----------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["w", "bias", "masks.embedding"])
def test_what_is_not_finite_is_refused_by_name(value: float, name: str) -> None:
    base = {name: torch.zeros(3) if name == "bias" else torch.zeros(3, 3)}
    adapted = {name: base[name].clone()}
    adapted[name].view(-1)[1] = value
    with pytest.raises(CosdaError, match=f"'{name}' are not finite numbers"):
        pack(adapted, base, 4)


@pytest.mark.parametrize("bits", ALL_BITS)
def test_so_many_bits_a_weight_and_not_more(bits: int) -> None:
    base = {"w": torch.zeros(64, 1024)}
    packed = pack({"w": rows(64, 1024).float()}, base, bits)
    written = len(safetensors.torch.save(packed))
    assert written <= base["w"].numel() * bits / 8 * 1.01 + 64 * 2 + 400
    assert packed["w:scales"].dtype == torch.float16
    assert sum(value.numel() * value.element_size() for value in pack(base, base, bits).values()) == 0


def test_equal_weights_are_packed_to_equal_bytes() -> None:
    base, adapted = {"w": rows(9, 9).float(), "b": rows(9).float()}, {"w": rows(9, 9, seed=1), "b": rows(9, seed=1)}
    last = {"w": adapted["w"].clone().t().contiguous().t(), "b": adapted["b"]}  # the same numbers in another order
    first, second = (safetensors.torch.save(pack(state, base, 4)) for state in (adapted, last))
    assert first == second
