"""The study behind docs/monitor.md, on made-up images."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

ROOT = Path(__file__).parents[1]
PLACES = ("early", "features", "predictions")


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch):
    """The script as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    sys.modules.pop("monitor", None)
    import monitor  # type: ignore[import-not-found]

    yield monitor
    del sys.modules["monitor"]


def made_up(shift: float, seed: int) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return {place: torch.randn(400, 5, generator=rng) + shift for place in PLACES}


def test_the_tables_tell_false_alarms_and_shifts(study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "HALVINGS", 10)
    monkeypatch.setattr(study, "SHIFTED", 6)
    shifts = {"one": 0.0, "two": 2.0}
    seen = {(a, b): made_up(shift, number) for a in shifts for number, (b, shift) in enumerate(shifts.items())}
    parts = [dict.fromkeys(shifts, half) for half in np.split(np.arange(400), 2)]
    family = study.Family("made up", seen, *parts)
    few, many = (study.shown("made up", count, list(study.halvings(family, count, "unseen"))) for count in (20, 100))
    assert few == ["made up", "20", "0.0 (20)", "0.0 (12)", "one → two 0"]  # a single group cannot tell
    assert many[3:] == ["100.0 (12)", ""]
    assert float(many[2].split()[0]) <= 20
    made = study.tables([family])
    assert " | ".join(many) in made["monitor"]
    head, _, *rows = made["places"].splitlines()
    assert head == "| data | profile made of |  | early | features | predictions |"
    assert [row.split(" | ")[2] for row in rows] == ["false alarms", "found"] * 2
    assert rows[1].endswith("| found | 100.0 (12) | 100.0 (12) | 100.0 (12) |")


def test_the_page_has_the_marks_that_the_study_writes_to() -> None:
    text = (ROOT / "docs/monitor.md").read_text(encoding="utf-8")
    for name in ("monitor", "places"):
        assert f"<!-- {name} -->\n\n| " in text
