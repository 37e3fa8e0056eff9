"""What a benchmark found: values with their limits, the machine they were taken on, and the table made of both."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import Ratio

BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"
BUSY = 0.5  # a load average above this, before anything was started, means that others are at work


@dataclass(frozen=True)
class Fact:
    """One measured value and what it is to be."""

    case: str
    value: float
    unit: str = "×"  # ×, s, %, MiB
    low: float | None = None  # the middle half of the rounds
    high: float | None = None
    most: float | None = None
    least: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)  # medians behind a ratio
    mebibytes: dict[str, float] = field(default_factory=dict)  # the same of memory

    @classmethod
    def of(cls, case: str, ratio: Ratio, **more: Any) -> Fact:
        """A ratio with its spread."""
        return cls(case, ratio.value, low=ratio.low, high=ratio.high, **more)

    @property
    def target(self) -> str:
        """The limit in words; empty where there is none."""
        if self.most is not None:
            return f"at most {number(self.most, self.unit)}"
        return "" if self.least is None else f"at least {number(self.least, self.unit)}"

    @property
    def met(self) -> bool | None:
        """Whether the limit is kept."""
        if self.most is not None:
            return self.value <= self.most
        return None if self.least is None else self.value >= self.least

    @property
    def reached(self) -> str:
        """The value with its spread."""
        text = number(self.value, self.unit)
        if self.low is None or self.high is None or self.low == self.high:
            return text
        return f"{text} ({self.low:.3g} to {self.high:.3g})"


def number(value: float, unit: str) -> str:
    """A value for reading."""
    digits = f"{value:.2f}" if 0.1 <= abs(value) < 100 else f"{value:.3g}"
    if value >= 1000:
        digits = f"{value:,.0f}"
    return f"{digits}{unit}" if unit == "×" else f"{digits} {unit}"


def machine() -> dict[str, Any]:
    """On what, and how quiet it was."""
    return {
        "torch": torch.__version__,
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def write(path: Path, name: str, facts: list[Fact], where: dict[str, Any], quick: bool) -> None:
    """One benchmark as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = [{**asdict(fact), "met": fact.met} for fact in facts]
    path.write_text(json.dumps({"name": name, "quick": quick, **where, "facts": found}, indent=1) + "\n")


def table(folder: Path, names: tuple[str, ...]) -> str:
    """What lies in a folder as Markdown, with the machine below it; benchmarks that are not there are named."""
    rows = ["| benchmark | what | to reach | reached (middle half of rounds) | |", "|---|---|---|---|---|"]
    machines: dict[str, list[str]] = {}
    missing = []
    for name in names:
        path = folder / f"{name}.json"
        if not path.exists():
            missing.append(name)
            continue
        stored = json.loads(path.read_text(encoding="utf-8"))
        for values in stored["facts"]:
            met = values.pop("met")
            fact = Fact(**values)
            verdict = {True: "yes", False: "**no**", None: ""}[met]
            rows.append(f"| `{name}` | {fact.case} | {fact.target} | {fact.reached} | {verdict} |")
        machines.setdefault(place(stored), []).append(f"{name} {stored['load']:.1f}")
    rows += ["", *(f"Taken on {where}; load average at the start: {', '.join(m)}." for where, m in machines.items())]
    rows += [f"Not measured: {', '.join(missing)}."] if missing else []
    return "\n".join(rows)


def place(stored: dict[str, Any]) -> str:
    """The machine of a benchmark that was written as JSON."""
    where = f"{stored['cpu']}, {stored['cores']} cores, torch {stored['torch']}"
    return where + (", **quick sizes: the numbers mean nothing**" if stored["quick"] else "")


def put_into(path: Path, text: str) -> None:
    """Replace what stands between the two markers of a page."""
    page = path.read_text(encoding="utf-8")
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise SystemExit(f"{path} needs the lines '{BEGIN}' and '{END}', once each, to put the table between.")
    before, rest = page.split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")
