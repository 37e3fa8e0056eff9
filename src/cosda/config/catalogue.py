"""What methods there are, and the settings of one with where each value comes from."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from cosda.config.presets import ablations
from cosda.config.request import Data, Request
from cosda.config.resolve import resolve
from cosda.config.schema import SECTIONS
from cosda.methods import METHODS
from cosda.models.encoders import ENCODERS
from cosda.records.run import Run
from cosda.records.timing import images_per_second, seconds_per_epoch
from cosda.settings import settings_of


def all_methods() -> list[dict[str, Any]]:
    """Name, title, variants and ablations of each method."""
    return [
        {"name": name, "title": cls.title, "variants": list(cls.variants), "ablations": list(ablations(name))}
        for name, cls in METHODS.items()
    ]


def all_encoders() -> list[dict[str, Any]]:
    """Name and title of each encoder, and whether weights can come with it."""
    return [
        {"name": name, "title": entry.title, "weights": "yes" if entry.has_weights else "no"}
        for name, entry in ENCODERS.items()
    ]


def settings_rows(
    method: str, benchmark: str = "own", variant: str | None = None, ablation: str | None = None
) -> list[dict[str, Any]]:
    """All settings of a method on a benchmark: key, value, origin, symbol, what is allowed, a sentence."""
    data = Data(benchmark, ("source", "target"), ())
    plan = resolve(data, Request(method, variant=variant, ablation=ablation))
    rows = []
    for section, cls in {"method": METHODS.find(method), **SECTIONS}.items():
        for key, one in settings_of(cls).items():
            rows.append(
                {
                    "key": f"{section}.{key}",
                    "value": plan.settings[section][key],
                    "origin": plan.origins[f"{section}.{key}"],
                    "symbol": one.symbol,
                    "allowed": one.allowed,
                    "help": one.help,
                }
            )
    return rows


def cost_rows(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """What each method cost in the given runs: passes are exact, seconds and memory are those of the machine.

    Damaged runs have no part in it.
    """
    by_method: dict[tuple[str, str], list[Run]] = {}
    for run in (run for run in runs if not run.damage):
        by_method.setdefault((str(run.config["benchmark"]), run.label), []).append(run)
    rows = []
    for (benchmark, label), group in sorted(by_method.items()):
        passes = [record["passes"] for run in group for record in run.of("loss") if "passes" in record]
        timing = [facts for run in group for facts in run.timing]
        if timing:
            rows.append(
                {
                    "benchmark": benchmark,
                    "method": label,
                    "passes per step": round(statistics.mean(passes), 2) if passes else None,
                    "seconds per epoch": round(seconds_per_epoch(timing) or 0.0, 3),
                    "images per second": round(images_per_second(timing) or 0.0),
                    "peak MiB of the process": round(max(facts["peak_bytes"] for facts in timing) / 2**20),
                }
            )
    return rows
