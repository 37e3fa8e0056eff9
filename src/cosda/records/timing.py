"""What timing.jsonl says: how far a run has come, and how long an epoch and an image take. No torch."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cosda.errors import CosdaError
from cosda.files import Json, open_regular, parse_json
from cosda.records.schema import Reached
from cosda.settings import typed


def read_timing(folder: Path) -> list[Json]:
    """The facts of a run's epochs so far.

    Another process may be writing the last line, and a kill may have cut one off: what is no whole line, or says
    something else, is left out.
    """
    try:
        with open_regular(folder / "timing.jsonl") as file:
            lines = [line for line in file if line.endswith(b"\n")]
    except OSError:  # nothing was timed yet
        return []
    return [facts for line in lines if (facts := _parse(line)) is not None]


def _parse(line: bytes) -> Json | None:
    try:
        facts: Json = typed(Reached, parse_json(line, "timing.jsonl"), "timing.jsonl")
    except CosdaError:
        return None
    return facts


def seconds_per_epoch(timing: Iterable[Mapping[str, Any]]) -> float | None:
    """The median over epochs; None where there was none."""
    found = [facts["seconds"] for facts in timing]
    return statistics.median(found) if found else None


def images_per_second(timing: Iterable[Mapping[str, Any]]) -> float | None:
    """The median over epochs; None where there was none, or none long enough to be timed."""
    found = [facts["images"] / facts["seconds"] for facts in timing if facts["seconds"] > 0]
    return statistics.median(found) if found else None


def seconds_per_image(timing: Iterable[Mapping[str, Any]]) -> float | None:
    """What an image of an epoch takes; None as for `images_per_second`."""
    speed = images_per_second(timing)
    return 1 / speed if speed else None
