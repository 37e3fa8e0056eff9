"""What the command line shows while it works."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from cosda.cli import progress
from cosda.cli.progress import Bars, Lines, Quiet
from cosda.watch import Watcher


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(progress.time, "perf_counter", found.perf_counter)
    return found


def train(watcher: Watcher, clock: Clock, epochs: int, seconds: float, begun: int = 0) -> None:
    """Epochs of two steps of ten images each, each step so many seconds long."""
    if begun:
        watcher.advance(0, images=20 * begun)
    for epoch in range(begun, epochs):
        watcher.begin(f"target {epoch + 1}/{epochs}", 2)
        for _ in range(2):
            clock.now += seconds
            watcher.advance(images=10, values={"loss": 0.5})
        watcher.end(loss=0.5)


def told(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_lines_tell_the_time_of_the_whole_job_once_and_the_share_that_is_done(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    watcher = Lines()
    watcher.job("aad", 200, "--freeze-encoder is quicker")
    train(watcher, clock, 10, seconds=3.0)
    events = told(capsys)
    assert [event["text"] for event in events if event["event"] == "estimate"] == ["about 54 s of training left"]
    assert [event["share"] for event in events if event["event"] == "done"] == [n / 10 for n in range(1, 11)]


def test_a_long_job_gets_a_hint_and_a_resumed_one_counts_what_was_done(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    watcher = Lines()
    watcher.job("aad", 200, "--freeze-encoder is quicker")
    train(watcher, clock, 10, seconds=60.0, begun=2)
    (estimate,) = [event["text"] for event in told(capsys) if event["event"] == "estimate"]
    assert estimate == "about 15 min of training left; --freeze-encoder is quicker"  # 15 steps of a minute each


def test_packing_before_the_job_and_measuring_are_no_training(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    watcher = Lines()
    watcher.begin("features of site", 50, "images")
    clock.now += 100
    watcher.advance(50, images=50)
    watcher.end()
    watcher.job("aad", 40)
    train(watcher, clock, 2, seconds=4.0)
    assert [event["text"] for event in told(capsys) if event["event"] == "estimate"] == ["about 8.0 s of training left"]


def test_one_bar_for_the_whole_job(clock: Clock) -> None:
    watcher, shown = Bars(), io.StringIO()
    watcher.console = Console(file=shown, force_terminal=True, width=120)
    watcher.begin("packing site", 3, "images")
    watcher.advance(3)
    watcher.end()
    watcher.job("aad", 60)
    bar = watcher.bar
    train(watcher, clock, 2, seconds=1.0)
    assert watcher.bar is bar
    assert bar is not None
    assert bar.tasks[0].completed == 40
    assert bar.tasks[0].description == "target 2/2"
    assert "10 images/s loss 0.500" in bar.tasks[0].fields["about"]
    train(watcher, clock, 3, seconds=1.0, begun=2)
    assert bar.finished


@pytest.mark.parametrize("watcher", [Quiet(), Lines(), Bars()], ids=lambda one: type(one).__name__)
def test_what_was_left_out_is_always_told(watcher: Watcher, capsys: pytest.CaptureFixture[str]) -> None:
    watcher.skipped("site", [(f"{n}.png", "damaged") for n in range(7)])
    watcher.ignored("site", "3 .heic")
    text = capsys.readouterr().err.replace("\n", " ")
    assert "0.png" in text
    assert "damaged" in text
    assert "3 .heic" in text
    assert "2 more" in text or "6.png" in text
    assert not capsys.readouterr().out
