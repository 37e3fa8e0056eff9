"""Settings and environments as a page shows them: flat, short, and without the paths of a machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"adapt": {"lr": 1}}`` -> ``{"adapt.lr": 1}``, in the order of the tree."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def show(value: Any) -> str:
    """A value as text. Of an absolute path the name is left: where files lie says nothing about a result."""
    if isinstance(value, str):
        for flavour in (PurePosixPath, PureWindowsPath):
            if flavour(value).is_absolute():
                return flavour(value).name or value
        return value
    if isinstance(value, list):
        return "[" + ", ".join(show(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
