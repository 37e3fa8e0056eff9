"""The chain of model folders that led to one, from its lineage alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from cosda.errors import CosdaError
from cosda.files import real_path
from cosda.models.folder import damaged, is_model, read_description
from cosda.records.lineage import Step, read_lineage


def history(path: str | Path) -> tuple[Step, ...]:
    """The steps that led to a model folder, oldest first, each with the folder of the model that it made.

    A model folder is never changed after it was written. So to go back is to use an older folder: that of a step which
    is still ``there``. Folders that were moved together are found beside the model's own.

    Raises:
        CosdaError: there is no model, or its description is damaged.

    Example:
        >>> [(step.date, step.domain, step.folder) for step in cosda.history("adapted-model")]
    """
    path = real_path(Path(path).expanduser())
    lineage = _lineage(path)
    steps = read_lineage(lineage, damaged(path))
    places = [None if step.began is None else Path(step.began) for step in steps[1:]]
    return tuple(
        _looked_for(step, place, path.parent, lineage[: number + 1])
        for number, (step, place) in enumerate(zip(steps, [*places, path], strict=False))  # a model may have no steps
    )


def _lineage(path: Path) -> list[Any]:
    return list(read_description(path)["lineage"])


def _looked_for(step: Step, place: Path | None, beside: Path, lineage: Sequence[Any]) -> Step:
    """The step with what became of the folder of its model, which is known by its lineage."""
    if place is None:
        return step
    found: Literal["gone", "replaced"] = "gone"
    for folder in (place, beside / place.name):
        try:
            if not is_model(folder):
                continue
            found = "replaced"
            if _lineage(folder) == lineage:
                size = sum(file.stat().st_size for file in folder.iterdir())
                return replace(step, folder=folder, found="there", bytes=size)
        except (CosdaError, OSError):  # damaged, or not ours to read
            continue
    return replace(step, folder=place, found=found)
