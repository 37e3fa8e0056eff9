"""The presets: one TOML file for each benchmark, and one with the ablations of all methods."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from cosda.registry import Registry


@cache
def load_preset(benchmark: str) -> dict[str, Any]:
    """The preset of a benchmark; empty for data of the user's own."""
    file = resources.files("cosda") / "presets" / f"{benchmark}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def ablations(method: str) -> Registry[dict[str, Any]]:
    """The ablations of a method: for each the settings that it changes."""
    return Registry(f"ablation of {method}", load_preset("ablations").get(method, {}))
