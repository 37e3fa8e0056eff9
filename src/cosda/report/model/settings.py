"""Settings and environments as a page shows them: short, and without the paths of a machine."""

from __future__ import annotations

import json
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any


def show(value: Any) -> str:
    """A value as text. Of an absolute path only the name: where files lie says nothing about a result."""
    if isinstance(value, str):
        for flavour in (PurePosixPath, PureWindowsPath):
            if flavour(value).is_absolute():
                return flavour(value).name or value
        return value
    if isinstance(value, list):
        return "[" + ", ".join(show(one) for one in value) + "]"
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
