"""The teacher's update, weights and statistics, against an epoch of ten steps and against a Python loop."""

from __future__ import annotations

from benchmarks.facts import Fact
from benchmarks.step import CASES, Case, arithmetic
from benchmarks.straightforward import average
from benchmarks.timing import interleaved
from cosda.parts.dual_speed import DualSpeed
from cosda.run.memory import keep_freed_memory

STEPS = 10


def measure(quick: bool = False) -> list[Fact]:
    """Its share of an epoch in percent, and how many times faster than a loop it is."""
    keep_freed_memory()
    facts = []
    for case in CASES[1:2] if quick else CASES[:2]:
        facts += _compare(case, 2 if quick else max(6, case.rounds // 2))
    return facts


def _compare(case: Case, rounds: int) -> list[Fact]:
    pair = DualSpeed(case.network())
    step = arithmetic(case)
    slow, fast = pair.teacher, pair.student

    def loop() -> None:
        average(list(slow.parameters()), list(fast.parameters()), 0.9)
        average(list(slow.buffers()), list(fast.buffers()), 0.9)

    timing = interleaved({"ours": lambda: pair.meet(0.9, 0.9), "loop": loop, "step": step}, rounds)
    share = timing.ratio("ours", "step").times(100 / STEPS)
    seconds = timing.medians
    return [
        Fact.of(f"share of {STEPS} steps, {case.name}", share, unit="%", most=1, seconds=seconds),
        Fact.of(f"times faster than a loop, {case.name}", timing.ratio("loop", "ours"), seconds=seconds),
    ]
