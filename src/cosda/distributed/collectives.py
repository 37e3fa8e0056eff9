"""Several processes that do one run together under torchrun, each on its share of every batch.

Every rank draws the same random numbers and holds the same networks, banks and labels. Work is shared in three places,
and no method knows of them: a rank reads its rows of a batch alone (`data/loader.py`), passes its rows alone through a
network (`models/network.py`), and after each the rows are gathered, so that all ranks see what one process would see.
After backward the gradients are averaged (`run/train.py`).

All losses are those of the whole batch on every rank. So the backward of a gather adds the gradients of all ranks, and
the average over ranks is then right both for what went through it and for what every rank computed in full.

Until `join` has met other processes, all functions here do nothing, at no cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from cosda.distributed import env
from cosda.errors import CosdaError

T = TypeVar("T")

LEAST = 2  # rows for each rank, or nothing is shared: BatchNorm needs two
PATIENCE = timedelta(days=30)  # for messages: rank 0 may wait for a source model that another job trains

_here = env.ALONE
_messages: Any = None  # the group for what is no tensor of a network; always over gloo


def join(backend: str) -> None:
    """Meet the other processes that torchrun started, once; alone there is nobody to meet."""
    global _here, _messages
    if _here.world > 1 or env.place().world == 1:
        return
    with _explained():
        if not dist.is_initialized():  # a program around us may have met them already
            dist.init_process_group(backend)
        _messages = dist.new_group(backend="gloo", timeout=PATIENCE)
    _here = env.place()


def leave() -> None:
    """Wait until all ranks have come to their end, and part."""
    global _here, _messages
    if _here.world > 1:
        barrier()
        dist.destroy_process_group()
        _here, _messages = env.ALONE, None


def world() -> int:
    """How many processes do this run together."""
    return _here.world


def rank() -> int:
    """The number of this one."""
    return _here.rank


def is_main() -> bool:
    """Whether this is the process that writes files and speaks to the user."""
    return _here.rank == 0


def share(count: int) -> slice:
    """The rows of a batch of ``count`` that this rank works on; all of them where there are too few to share."""
    sizes = _sizes(count)
    if sizes[0] == count:
        return slice(0, count)
    start = sum(sizes[: _here.rank])
    return slice(start, start + sizes[_here.rank])


def gather_rows(rows: Tensor, count: int) -> Tensor:
    """The whole batch, from the `share` of each rank, with gradient; of a batch that is not shared, rank 0's rows."""
    if _here.world == 1:
        return rows
    if rows.dim() == 4 and rows.is_contiguous(memory_format=torch.channels_last):  # images keep their memory order
        return gather_rows(rows.permute(0, 2, 3, 1), count).permute(0, 3, 1, 2)
    return _Gather.apply(rows, count)  # type: ignore[no-any-return, no-untyped-call]


@torch.no_grad()
def mean_over_ranks(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its mean over all ranks, in one exchange for each kind of number."""
    if _here.world == 1:
        return
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        chosen = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in chosen])
        with _explained():
            dist.all_reduce(flat)
        parts = (flat / _here.world).split([tensor.numel() for tensor in chosen])  # type: ignore[no-untyped-call]
        torch._foreach_copy_(chosen, [part.view(tensor.shape) for part, tensor in zip(parts, chosen, strict=True)])


def barrier() -> None:
    """Wait for all ranks."""
    everyone(None)


def from_first(value: T) -> T:
    """What rank 0 has."""
    if _here.world == 1:
        return value
    box = [value]
    with _explained():
        dist.broadcast_object_list(box, src=0, group=_messages)
    return box[0]


def everyone(value: T) -> list[T]:
    """What each rank has, by rank."""
    if _here.world == 1:
        return [value]
    box: list[Any] = [None] * _here.world
    with _explained():
        dist.all_gather_object(box, value, group=_messages)
    return box


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, count: int) -> Tensor:
        ctx.count, ctx.rows = count, len(rows)
        sizes = _sizes(count)
        own = rows[: sizes[_here.rank]].contiguous()
        if len(own) < sizes[0]:  # all ranks must send the same number of rows
            own = torch.cat([own, own.new_zeros((sizes[0] - len(own), *own.shape[1:]))])
        parts = [torch.empty_like(own) for _ in sizes]
        with _explained():
            dist.all_gather(parts, own)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        with _explained():
            dist.all_reduce(total)
        sizes = _sizes(ctx.count)
        start = sum(sizes[: _here.rank])
        own = total[start : start + sizes[_here.rank]]
        # Of a batch that is not shared, only rank 0's rows went anywhere.
        return (own if len(own) == ctx.rows else total.new_zeros((ctx.rows, *total.shape[1:]))), None


def _sizes(count: int) -> list[int]:
    """How many rows of a batch each rank hands in; the first ones have the larger shares, or one has all."""
    if count < LEAST * _here.world:
        return [count] + [0] * (_here.world - 1)
    least, more = divmod(count, _here.world)
    return [least + (number < more) for number in range(_here.world)]


@contextmanager
def _explained() -> Iterator[None]:
    """Say what it means that an exchange failed."""
    try:
        yield
    except RuntimeError as error:  # torch's distributed errors are its children
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise CosdaError(
            f"an exchange with the other processes of this run failed ({reason}). One of them has probably ended; "
            "torchrun says which. The same command goes on where the last epoch ended."
        ) from None
