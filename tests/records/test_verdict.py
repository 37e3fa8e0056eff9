"""A verdict survives its file, and what is no verdict is refused by the file's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cosda.errors import CosdaError
from cosda.records.verdict import (
    FOLDER,
    Checked,
    Counted,
    Estimate,
    JudgedImage,
    Said,
    Verdict,
    read_images,
    read_verdict,
)

SAID = Said((3, 1), 0.8, (0,) * 19 + (4,), Estimate(0.7, 0.6, 0.8, {"threshold": 0.72}), {"snd": 2.9})
VERDICT = Verdict(
    verdict="doubtful",
    reasons=("few images",),
    decided_by="check",
    domain="hand",
    images=4,
    classes=("a", "b"),
    method="aad",
    select="last",
    before=SAID,
    after=Said((2, 2), 0.9, (0,) * 19 + (4,), None),
    changed=0.25,
    agreement={"hand": 0.75},
    risk=0.5,
    evidence={"distance": 1.5},
    check=Checked(Counted(3, 4, 0.2, 0.99), Counted(2, 4, 0.1, 0.9), 0, 1, 1.0),
)
IMAGE = JudgedImage("x.png", "a", 0.5, "b", 0.9, why="changed", thumbnail="0.jpg")


def write(run: Path, name: str, value: Any) -> None:
    (run / FOLDER).mkdir(exist_ok=True)
    (run / FOLDER / name).write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


def test_files_hold_all_there_is(tmp_path: Path) -> None:
    write(tmp_path, "verdict.json", VERDICT.as_json())
    write(tmp_path, "images.json", [IMAGE.as_json()])
    assert read_verdict(tmp_path) == VERDICT
    assert read_images(tmp_path) == (IMAGE,)


def test_what_is_optional_may_be_missing(tmp_path: Path) -> None:
    values = VERDICT.as_json()
    for key in ("before", "after", "changed", "agreement", "check"):
        del values[key]
    write(tmp_path, "verdict.json", values)
    found = read_verdict(tmp_path)
    assert found is not None
    assert (found.before, found.changed, found.agreement, found.check) == (None, None, {}, None)
    values = VERDICT.as_json()
    del values["before"]["scores"], values["before"]["estimate"]["estimators"]
    assert Verdict.from_json(values).before == Said((3, 1), 0.8, SAID.confidences, Estimate(0.7, 0.6, 0.8))


def test_a_run_that_nobody_judged_has_neither(tmp_path: Path) -> None:
    assert read_verdict(tmp_path) is None
    assert read_images(tmp_path) == ()


def changed(*keys: str, to: Any) -> dict[str, Any]:
    values = VERDICT.as_json()
    place = values
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    return values


@pytest.mark.parametrize(
    "damaged",
    [
        "{",
        "[1]",
        "{}",
        changed("verdict", to="fine"),
        changed("decided_by", to="me"),
        changed("before", "confidence", to="high"),
        changed("before", "confidences", to=None),
        changed("before", "classes", to=[4]),
        changed("before", "estimate", "accuracy", to=None),
        changed("before", "estimate", "estimators", to=[1]),
        changed("before", "classes", to=[float("inf"), 1]),
        changed("check", "after", "images", to=0),
        changed("check", "after", "correct", to=5),
        changed("check", to={"before": {}}),
        changed("changed", to="much"),
        changed("agreement", to={"hand": "much"}),
        changed("what", to="else"),
    ],
)
def test_a_damaged_verdict_is_an_error_that_names_the_file(tmp_path: Path, damaged: Any) -> None:
    write(tmp_path, "verdict.json", damaged)
    with pytest.raises(CosdaError, match=r"verdict\.json is damaged"):
        read_verdict(tmp_path)


@pytest.mark.parametrize(
    "damaged",
    [
        "[",
        [1],
        {"image": "x.png"},
        [IMAGE.as_json() | {"why": "pretty"}],
        [IMAGE.as_json() | {"after_probability": "high"}],
        [IMAGE.as_json() | {"thumbnail": "../../secret.jpg"}],
        [IMAGE.as_json() | {"thumbnail": "/secret.jpg"}],
        [IMAGE.as_json() | {"more": 1}],
    ],
)
def test_damaged_images_are_an_error_that_names_the_file(tmp_path: Path, damaged: Any) -> None:
    write(tmp_path, "images.json", damaged)
    with pytest.raises(CosdaError, match=r"images\.json is damaged"):
        read_images(tmp_path)


def test_numbers_for_people() -> None:
    assert Estimate(0.704, 0.611, 0.809).text == "70% (61% to 81%)"
    assert Counted(17, 20, 0.621, 0.968).text == "85% (62% to 97%)"
