"""A verdict on the terminal: one screen that says what was found and what to do next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cosda.cli.tables import print_verdict
from cosda.records.verdict import Checked, Counted, Estimate, Said, Verdict

BINS = (0,) * 19 + (20,)
VERDICT = Verdict(
    verdict="accepted",
    reasons=("The estimated accuracy rises.", "Little is [red]forgotten[/red]."),
    decided_by="estimates",
    domain="hand",
    images=20,
    classes=("cat", "dog", "bird"),
    method="aad",
    select="last",
    before=Said((10, 8, 2), 0.64, BINS, Estimate(0.61, 0.54, 0.67)),
    after=Said((7, 8, 5), 0.81, BINS, Estimate(0.78, 0.71, 0.84)),
    changed=0.25,
    agreement={"hand": 0.75, "print": 0.99, "colour": 0.98},
)
CHECK = Checked(Counted(17, 20, 0.621, 0.968), Counted(12, 20, 0.361, 0.809), 1, 6, 0.125)


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str]):
    def show(verdict: Verdict, *places: Path) -> list[str]:
        print_verdict(verdict, *places)
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return show


def test_what_a_screen_says(screen) -> None:
    assert screen(VERDICT) == [
        " ACCEPTED  hand, 20 images, aad: decided by estimates without labels",
        " • The estimated accuracy rises.",
        " • Little is [red]forgotten[/red].",
        " estimated accuracy 61% (54% to 67%) → 78% (71% to 84%)",
        " mean confidence    64% → 81%",
        " class changed      25% of the images",
        " agreement, known   colour 98%, print 99%",
        " images by class    cat: 10 → 7, bird: 2 → 5",
        "next: use it; cosda report RUN -o report.html shows the images that changed; to go back, use the older folder",
    ]


def test_a_check_is_on_it(screen) -> None:
    lines = screen(replace(VERDICT, verdict="rejected", decided_by="check", check=CHECK), Path("runs/x"), Path("old"))
    assert lines[0] == " REJECTED  hand, 20 images, aad: decided by the labelled images"
    assert " 20 labelled images 85% (62% to 97%) → 60% (36% to 81%): 1 better, 6 worse, p = 0.125" in lines
    assert lines[-1].startswith("next: go on with old, which is as it was; cosda report runs/x -o report.html shows ")
    assert "a lower rate (--set adapt.lr=" in lines[-1]


def test_training_that_was_stopped_has_reasons_alone(screen) -> None:
    stopped = replace(
        VERDICT, verdict="rejected", decided_by="guard", before=None, after=None, changed=None, agreement={}
    )
    lines = screen(stopped)
    assert len(lines) == 4
    assert lines[-1].endswith("another try: other images"), "no setting helps where nothing was trained"


def test_without_a_calibrated_profile_the_screen_says_so(screen) -> None:
    bare = [replace(side, estimate=None) for side in (VERDICT.before, VERDICT.after) if side]
    lines = screen(replace(VERDICT, verdict="doubtful", before=bare[0], after=bare[1]))
    assert " estimated accuracy the model has no calibrated profile" in lines
    assert "--check" in lines[-1]


def test_everything_that_can_be_long_stays_on_one_screen(screen) -> None:
    count = 300
    many = replace(
        VERDICT,
        reasons=("A reason of many words. " * 6,) * 9,
        domain="d" * 200,
        classes=tuple(f"a class with a long name, {i}" for i in range(count)),
        before=Said((5,) * count, 0.6, BINS, Estimate(0.6, 0.5, 0.7)),
        after=Said((0,) * (count - 1) + (5 * count,), 0.9, BINS, Estimate(0.7, 0.6, 0.8)),
        agreement={f"a domain with a long name, {i}": i / 100 for i in range(50)},
        check=CHECK,
    )
    lines = screen(many)
    assert len(lines) <= 24
    assert max(map(len, lines[:-1])) <= 100
    assert any("44 more domains" in line for line in lines)
    assert any("294 more moved less" in line for line in lines)
