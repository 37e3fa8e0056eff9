"""The presets: one TOML file for each benchmark, and one with the ablations of all methods."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from cosda.data.registry import BENCHMARKS
from cosda.errors import CosdaError
from cosda.registry import Registry


def load_preset(benchmark: str) -> dict[str, Any]:
    """The preset of a benchmark; empty for data of the user's own."""
    known = BENCHMARKS.get(benchmark)
    if known is not None and known.preset is not None:
        return _read(Path(known.preset))
    return _shipped(benchmark)


@cache
def _shipped(name: str) -> dict[str, Any]:
    file = resources.files("cosda") / "presets" / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise CosdaError(f"the preset {path} cannot be read: {error}.") from None


def ablations(method: str) -> Registry[dict[str, Any]]:
    """The ablations of a method: for each the settings that it changes."""
    return Registry(f"ablation of {method}", _shipped("ablations").get(method, {}))
