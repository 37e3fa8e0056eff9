"""Figures of an adaptation: what stands where."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import plotly.graph_objects as go
import pytest
from stored_runs import ACCEPTED, REJECTED, STOPPED, add_records, write_adaptation

from cosda.records.run import read_run
from cosda.records.verdict import Said, Verdict
from cosda.report.figures.adaptations import confidences, estimates, predicted_classes
from cosda.report.figures.epochs import absolute_scores
from cosda.report.figures.style import Plot

SCRIPT_LABEL = "&lt;script&gt;alert(1…"


@pytest.mark.parametrize("make", [estimates, confidences, predicted_classes])
@pytest.mark.parametrize("verdict", [ACCEPTED, REJECTED, STOPPED], ids=["accepted", "rejected", "stopped"])
def test_plotly_takes_every_figure(make, verdict: Verdict) -> None:
    go.Figure(make(verdict))


def test_estimates_and_what_was_measured() -> None:
    before, after = estimates(REJECTED)["data"]
    assert estimates(REJECTED)["layout"]["yaxis"]["ticktext"] == ["estimate", "threshold", "views", "labelled images"]
    assert before["x"] == [61, 63, 50, 85]
    assert after["x"] == [78, 80, 50, 60]
    assert before["error_x"]["array"] == pytest.approx([6, None, None, 11.8])
    assert before["error_x"]["arrayminus"] == pytest.approx([7, None, None, 22.9])
    assert after["hovertext"][0] == "after: 78% (71% to 84%)"


def test_without_estimates_there_is_only_what_was_measured() -> None:
    bare = [replace(side, estimate=None) for side in (REJECTED.before, REJECTED.after) if side]
    plot = estimates(replace(REJECTED, before=bare[0], after=bare[1]))
    assert plot["layout"]["yaxis"]["ticktext"] == ["labelled images"]
    assert [trace["x"] for trace in plot["data"]] == [[85], [60]]
    assert estimates(STOPPED)["data"] == []


def test_images_of_each_class() -> None:
    plot = predicted_classes(ACCEPTED)
    assert [trace["y"] for trace in plot["data"]] == [[10, 8, 2], [7, 8, 5]]
    assert plot["layout"]["xaxis"]["ticktext"] == ["0", "1", SCRIPT_LABEL]
    assert plot["layout"]["xaxis"]["tickangle"] == -45, "where names begin below their bars, the last ones are missing"
    digits = predicted_classes(replace(ACCEPTED, classes=("0", "1", "2")))
    assert digits["layout"]["xaxis"]["tickangle"] == 0


def test_of_very_many_classes_those_that_move() -> None:
    classes = tuple(map(str, range(100)))
    before = Said((1,) * 100, 0.5, (1,), None)
    after = Said((1,) * 98 + (0, 2), 0.5, (1,), None)
    plot = predicted_classes(replace(ACCEPTED, classes=classes, before=before, after=after))
    assert len(plot["data"][0]["y"]) == 40
    assert plot["layout"]["xaxis"]["ticktext"][-2:] == ["98", "99"]


def test_confidences_are_shares() -> None:
    before, after = confidences(ACCEPTED)["data"]
    assert before["x"][:2] == [0, 5]
    assert len(before["x"]) == len(before["y"]) == 21
    assert sum(after["y"][:-1]) == pytest.approx(100)
    assert before["y"][12] == 25


def marks(plot: Plot, name: str) -> list[tuple[float, float]]:
    return [xy for trace in plot["data"] if trace["name"] == name for xy in zip(trace["x"], trace["y"], strict=True)]


def test_scores_are_absolute_and_begin_with_the_incoming_model(tmp_path: Path) -> None:
    run = read_run(write_adaptation(tmp_path / "run"))
    assert ACCEPTED.before is not None
    plots = absolute_scores(run, ACCEPTED.before.scores)
    assert list(plots) == ["information", "agreement"]
    assert marks(plots["information"], "information") == [(0, 0.7), (1, 1.0), (2, 1.2)]
    assert marks(plots["agreement"], "incoming model") == [(0, 1.0)]
    assert marks(plots["agreement"], "chosen epoch") == [(2, 0.8)]
    assert marks(absolute_scores(run, {})["information"], "information") == [(1, 1.0), (2, 1.2)]


def test_an_infinite_score_is_a_gap(tmp_path: Path) -> None:
    run = write_adaptation(tmp_path / "run")
    place = {"kind": "loss", "stage": 1, "epoch": 2, "terms": {}}
    add_records(run, [place, {"kind": "validation", "stage": 1, "epoch": 2, "scores": {"information": float("nan")}}])
    plot = absolute_scores(read_run(run), {})["information"]
    assert plot["data"][0]["y"] == [1.0, 1.2, None]
