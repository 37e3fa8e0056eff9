"""A domain bank that routes mixed batches against the plain model that it was made of, warm.

Experts are the base with a little noise; domains are noise of different colours and contrasts, which the router tells
apart as it does real ones. Every batch of 64 has images of all domains.
"""

from __future__ import annotations

import copy
from functools import partial

import torch
from torch import Tensor

from benchmarks.alone import alone
from benchmarks.facts import Fact
from benchmarks.timing import Timing, interleaved
from cosda.models.architecture import Architecture
from cosda.models.bn_folding import evaluating
from cosda.models.experts import DomainBank, Expert
from cosda.models.network import Network, to_device
from cosda.models.router import Gauge, new_profile
from cosda.run.memory import keep_freed_memory, peak_bytes

BATCH = 64
CPU = torch.device("cpu")


def measure(quick: bool = False) -> list[Fact]:
    """How much longer routed prediction takes, and how much more memory it needs."""
    if quick:
        return _compare("small ResNet, 32 px", "small", 32, (2,), 2)
    cases = (("lite0, 96 px", "lite0", 96), ("lite0, 224 px", "lite0", 224), ("ResNet-18, 224 px", "resnet18", 224))
    return [fact for case in cases for fact in _compare(*case, (2, 8), 12)] + _compare(
        "small ResNet, 32 px", "small", 32, (2, 8), 40
    )


def _compare(case: str, encoder: str, side: int, counts: tuple[int, ...], rounds: int) -> list[Fact]:
    facts = []
    for count in counts:
        found = alone(times, encoder, side, count, rounds)
        name = f"routed prediction, {case}, {count} domains"
        facts.append(Fact.of(name, found.ratio("routed", "plain"), most=1.25, seconds=found.medians))
    plain, routed = (alone(memory, encoder, side, counts[-1], ready) for ready in (0, 2))
    used = {"plain": plain / 2**20, "routed": routed / 2**20}
    name = f"memory of routed prediction, {case}, {counts[-1]} domains, 2 experts ready"
    return [*facts, Fact(name, routed / plain, most=1.5, mebibytes=used)]


def times(encoder: str, side: int, count: int, rounds: int) -> Timing:
    """Seconds of a batch, routed and plain, in this process."""
    keep_freed_memory()
    bank, images = make_bank(encoder, side, count)
    with evaluating(bank.base) as plain, evaluating(bank):
        return interleaved({"routed": partial(bank, images), "plain": partial(plain, images)}, rounds, warm=3)


def memory(encoder: str, side: int, count: int, ready: int) -> int:
    """What a process takes at most beyond its libraries, with so many experts ready; with none, the plain model."""
    libraries = peak_bytes(CPU)
    bank, images = make_bank(encoder, side, count if ready else 1)
    bank = bank.keep_ready(ready or 1)
    with evaluating(bank if ready else bank.base) as network:
        for _ in range(3):
            network(images)
    return peak_bytes(CPU) - libraries


def make_bank(encoder: str, side: int, count: int) -> tuple[DomainBank, Tensor]:
    """A bank of so many domains, and a batch of images of all of them."""
    torch.manual_seed(0)
    base = to_device(Architecture(encoder, 256, 31).build("random"), CPU).eval()
    seen = [domain(number, 64, side) for number in range(count)]
    gauge = Gauge(base.encoder)
    base.profile = new_profile("0", gauge(seen[0]), (), gauge.late)
    bank = DomainBank(base, ())
    for number in range(1, count):
        profile = new_profile(str(number), gauge(seen[number]), bank.profiles, gauge.late)
        bank = bank.with_expert(Expert.make(_noisy(base), base, 4, profile))
    mixed = [domain(number % count, 1, side, place) for place, number in enumerate(range(BATCH))]
    return bank, torch.cat(mixed).contiguous(memory_format=torch.channels_last)


def domain(number: int, images: int, side: int, seed: int = 1000) -> Tensor:
    """Images of a domain: noise of its own colour, contrast and grain."""
    rng = torch.Generator().manual_seed(seed * 100 + number)
    colour = torch.randn(1, 3, 1, 1, generator=torch.Generator().manual_seed(number))
    grain = 1 + number % 3
    fine = torch.randn(images, 3, side // grain, side // grain, generator=rng)
    return torch.nn.functional.interpolate(fine, (side, side)) * (0.5 + 0.2 * number) + 2 * colour


def _noisy(base: Network) -> Network:
    other = copy.deepcopy(base)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(
                torch.randn_like(parameter), alpha=0.01 * float(parameter.std() if parameter.dim() > 1 else 0)
            )
    return other
