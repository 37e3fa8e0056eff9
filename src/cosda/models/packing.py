"""Weights of a network as small differences to those of another one: 2, 4 or 8 bits a weight, one scale a row.

A matrix or a convolution kernel becomes codes q of b bits and a scale s for each output row,

    difference ≈ s·(q - (2^b - 1)/2),

with the s of a few that errs least. What has one dimension (biases, norms, BatchNorm statistics) and what fits no
scheme is kept in full, as a difference of 16 bits where that is exact enough, else as it is. What did not change is
left out. The codes are far from evenly spread, so they are deflated, which saves another tenth or two.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from cosda.errors import CosdaError

# Of the scale that reaches the largest difference of a row; smaller ones cut off outliers and err less elsewhere.
CLIPS = {2: (0.35, 0.45, 0.55, 0.65, 0.8, 1.0), 4: (0.5, 0.6, 0.7, 0.8, 0.9, 1.0), 8: (1.0,)}
EXACT = ("masks.",)  # names of what a small error would change much: a mask is almost a step function

State = Mapping[str, Tensor]


def pack(adapted: State, base: State, bits: int) -> dict[str, Tensor]:
    """What is needed beside ``base`` to have ``adapted`` again, almost; names are those of the weights with a suffix.

    Raises:
        CosdaError: the weights are not finite, so that they cannot be packed.
    """
    packed: dict[str, Tensor] = {}
    for name, value in adapted.items():
        value, old = value.detach().cpu(), base[name].detach().cpu()
        if torch.equal(value, old):
            continue
        if not bool(value.isfinite().all()):
            raise CosdaError(f"the adapted weights '{name}' are not finite numbers. Lower the learning rate.")
        if not value.is_floating_point() or name.startswith(EXACT):
            packed[f"{name}:full"] = value.clone()
        elif value.dim() < 2:
            difference = _half(value.double() - old.double())
            # One is divided by variances, so a small one must be right by itself and not only beside large ones.
            near = not name.endswith("running_var") or torch.allclose(old + difference.to(old), value, 2**-8, 0)
            packed[f"{name}:{'difference' if near else 'full'}"] = difference if near else value.clone()
        else:
            codes, scales = quantise((value.double() - old.double()).flatten(1), bits)
            packed[f"{name}:codes"], packed[f"{name}:scales"] = _deflate(codes, bits), scales
    return packed


def unpack(packed: Mapping[str, Tensor], base: State, bits: int) -> dict[str, Tensor]:
    """The weights that were packed, as near as the bits allow; those of ``base`` where nothing changed.

    Raises:
        CosdaError: it was packed from other weights, or is damaged.
    """
    state = {name: value.detach() for name, value in base.items()}
    for key, value in packed.items():
        name, _, kind = key.rpartition(":")
        try:
            if kind != "scales":
                state[name] = _unpacked(value, packed.get(f"{name}:scales"), base[name].detach(), kind, bits)
        except (KeyError, RuntimeError, TypeError, ValueError, zlib.error) as error:
            reason = str(error).strip().partition("\n")[0]
            raise CosdaError(f"'{key}' was packed from other weights, or is damaged: {reason}.") from None
    return state


def _unpacked(value: Tensor, scales: Tensor | None, old: Tensor, kind: str, bits: int) -> Tensor:
    """One of the weights; an error of any kind where it does not fit the ``old`` ones."""
    if kind == "full":  # the base's table of masks may have grown since
        new = torch.cat([value.to(old), old[len(value) :]]) if old.dim() else value.to(old)
    elif kind == "difference":
        new = old + value.to(old)
    elif kind == "codes" and scales is not None:
        codes = _inflate(value, bits, old.numel()).view(len(scales), -1)
        middle = (2**bits - 1) / 2
        new = old + ((codes.float() - middle) * scales.float()[:, None]).view(old.shape).to(old)
    else:
        raise ValueError("nothing is packed so")
    if new.shape != old.shape:
        raise ValueError(f"it is {tuple(new.shape)} and not {tuple(old.shape)}")
    return new


def quantise(rows: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes (R, N) from 0 to 2^bits - 1, and the scale (R,) of each row that errs least."""
    middle = (2**bits - 1) / 2
    widest = rows.abs().amax(dim=1) / middle
    best = torch.full((len(rows),), float("inf"), dtype=rows.dtype)
    codes, scales = torch.zeros(rows.shape, dtype=torch.uint8), torch.zeros(len(rows), dtype=rows.dtype)
    for clip in CLIPS[bits]:
        scale = _half(widest * clip).to(rows.dtype)  # as it will be stored
        step = scale[:, None]
        tried = (rows / step.clamp(min=1e-30) + middle).round().clamp(0, 2**bits - 1)
        error = ((tried - middle) * step - rows).square().sum(dim=1)
        better = error < best
        best = torch.where(better, error, best)
        codes[better], scales[better] = tried[better].to(torch.uint8), scale[better]
    return codes, _half(scales)


def _half(values: Tensor) -> Tensor:
    """In 16 bits, unless they are so large or so small that these would not do."""
    half = values.to(torch.float16)
    largest = values.abs().max() if values.numel() else values.new_zeros(())
    exact = bool(half.isfinite().all()) and bool((half.to(values.dtype) - values).abs().max() <= largest * 2**-10)
    return half if exact else values.float()


def _deflate(codes: Tensor, bits: int) -> Tensor:
    """Several codes to a byte, deflated."""
    many = 8 // bits
    flat = codes.flatten().numpy()
    flat = np.pad(flat, (0, -len(flat) % many)).reshape(-1, many)
    together = np.zeros(len(flat), dtype=np.uint8)
    for place in range(many):
        together |= flat[:, place] << (bits * place)
    return torch.frombuffer(bytearray(zlib.compress(together.tobytes(), 6)), dtype=torch.uint8)


def _inflate(packed: Tensor, bits: int, count: int) -> Tensor:
    if bits not in CLIPS:
        raise ValueError(f"weights have {', '.join(map(str, CLIPS))} bits, not {bits}")
    many, mask = 8 // bits, np.uint8(2**bits - 1)
    size = -(-count // many)
    # A few bytes can unpack to gigabytes; no more are taken than there are weights.
    unpacked = zlib.decompressobj().decompress(packed.numpy().tobytes(), size + 1)
    if len(unpacked) != size:
        raise ValueError(f"it does not unpack to {size} bytes")
    together = np.frombuffer(unpacked, dtype=np.uint8)
    codes = np.stack([(together >> np.uint8(bits * place)) & mask for place in range(many)], axis=1)
    return torch.from_numpy(codes.reshape(-1)[:count].copy())
