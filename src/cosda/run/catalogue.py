"""What methods there are, and the settings of one with where each value comes from."""

from __future__ import annotations

from typing import Any

from cosda.methods import METHODS, method_class
from cosda.run.config import SECTIONS, ablations, resolve
from cosda.settings import settings_of


def all_methods() -> list[dict[str, Any]]:
    """Name, title, variants and ablations of each method."""
    return [
        {"name": name, "title": cls.title, "variants": list(cls.variants), "ablations": list(ablations(name))}
        for name, cls in METHODS.items()
    ]


def settings_rows(
    method: str, benchmark: str = "own", variant: str | None = None, ablation: str | None = None
) -> list[dict[str, Any]]:
    """All settings of a method on a benchmark: key, value, origin, symbol, what is allowed, a sentence."""
    plan = resolve(
        benchmark=benchmark,
        fingerprint="",
        protocol="transductive",
        headline="top1",
        domains=("source", "target"),
        classes=(),
        method=method,
        variant=variant,
        ablation=ablation,
    )
    rows = []
    for section, cls in {"method": method_class(method), **SECTIONS}.items():
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
