"""A CoSDA step of the paper's network in bf16, compiled, and both, against the same step in float32.

The first call of a compiled network, which takes a minute or more, does not count. Where the processor has no bf16
arithmetic there is nothing to measure but compiling.
"""

from __future__ import annotations

from benchmarks.alone import alone
from benchmarks.facts import Fact
from benchmarks.step import CPU, Case, our_step
from benchmarks.timing import Timing, interleaved
from cosda.models.precision import Arithmetic, lacking
from cosda.run.memory import keep_freed_memory

PLAIN = "float32"


def measure(quick: bool = False) -> list[Fact]:
    """How many times as fast each way is."""
    if quick:
        case, backend = Case("small ResNet, 32 px, batch 8", "small", 32, 8, 1), "eager"
    else:
        case, backend = Case("ResNet-50 v1, 224 px, batch 64", "resnet50-v1", 224, 64, 5), "inductor"
    timing = alone(times, case, backend)
    return [
        Fact.of(f"{way}, {case.name}", timing.ratio(PLAIN, way), seconds=timing.medians)
        for way in timing.rounds
        if way != PLAIN
    ]


def times(case: Case, backend: str) -> Timing:
    """Seconds of a step in each way, in this process."""
    keep_freed_memory()
    ways = {PLAIN: Arithmetic(), "float32, compiled": Arithmetic(compiled=True, backend=backend)}
    if not lacking("bf16", CPU):
        ways |= {"bf16": Arithmetic("bf16"), "bf16, compiled": Arithmetic("bf16", True, backend)}
    return interleaved({name: our_step(case, way) for name, way in ways.items()}, case.rounds, warm=2)
