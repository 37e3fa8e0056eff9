"""What results say of themselves where they are printed, and in notebooks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cosda
from cosda.api import Evaluation
from cosda.judge.monitor import Drift
from cosda.models.architecture import Architecture
from cosda.records.images import ComparedImage
from cosda.records.lineage import Step
from cosda.records.run import Run, find_runs
from cosda.records.verdict import Checked, Counted, Estimate, Said, Verdict
from cosda.report import write_report
from cosda.report.diff.changes import Diff
from cosda.run.predictions import Prediction, Route
from cosda.shown import Shown
from tiny import CLASSES, SEEN, tiny_benchmark, tiny_network

BINS = (0,) * 19 + (20,)
VERDICT = Verdict(
    verdict="accepted",
    reasons=("The estimated accuracy rises.", "Little is <forgotten>."),
    decided_by="estimates",
    domain="hand",
    images=20,
    classes=("cat", "dog"),
    method="aad",
    select="last",
    before=Said((10, 10), 0.64, BINS, Estimate(0.61, 0.54, 0.67)),
    after=Said((7, 13), 0.81, BINS, None),
    changed=0.25,
    agreement={"hand": 0.75, "print": 0.99},
    check=Checked(Counted(12, 20, 0.361, 0.809), Counted(17, 20, 0.621, 0.968), 6, 1, 0.125),
)
DRIFT = Drift(
    images="photos/today",
    count=300,
    domains=("print",),
    shares={"print": 1.0},
    unlike=0.64,
    places={"early": 0.0001, "features": 0.02, "predictions": None},
    p_value=0.0003,
    alpha=0.05,
    estimate=Estimate(0.61, 0.49, 0.72),
    adapt=True,
    reason="they differ from print",
)


def test_a_verdict() -> None:
    assert str(VERDICT).splitlines() == [
        "accepted: hand, 20 images, aad; decided by estimates without labels",
        "  why                 The estimated accuracy rises.",
        "  why                 Little is <forgotten>.",
        "  20 labelled images  60% (36% to 81%) → 85% (62% to 97%): 6 better, 1 worse (p = 0.12)",
        "  estimated accuracy  61% (54% to 67%) → unknown",
        "  mean confidence     64% → 81%",
        "  class changed       25% of the images",
        "  agreement, known    print 99%",
    ]
    stopped = replace(VERDICT, decided_by="guard", before=None, after=None, check=None)
    assert len(str(stopped).splitlines()) == 3


def test_what_a_notebook_shows_is_the_same_and_has_no_tags_of_the_data() -> None:
    page = VERDICT._repr_html_()
    assert "<tr><th>why</th><td>Little is &lt;forgotten&gt;.</td></tr>" in page
    assert page.count("<tr>") == len(str(VERDICT).splitlines()) - 1
    assert "\n\n" not in page  # Markdown would end the table there
    assert VERDICT._repr_mimebundle_() == {"text/plain": str(VERDICT)}
    assert "agreement={" in repr(VERDICT)  # all of it, for whoever looks for a mistake


def test_a_drift() -> None:
    assert str(DRIFT).splitlines() == [
        "photos/today: adapt now? yes",
        "  why                 they differ from print",
        "  images looked at    300",
        "  most like           print",
        "  unlike all known    64%",
        "  p-value             0.0003 (early 0.0001, features 0.02)",
        "  estimated accuracy  61% (49% to 72%)",
    ]
    untold = str(replace(DRIFT, adapt=None, p_value=None, estimate=None))
    assert "adapt now? cannot be told" in untold
    assert untold.endswith("unknown")


def test_an_evaluation_begins_with_the_worst_classes() -> None:
    few = Evaluation("hand", ("cat", "dog", "emu"), [10, 20, 0], [9, 5, 0], {"x.png": "broken"})
    assert str(few).splitlines() == [
        "hand: 46.7% of 30 images correct",
        "  class  images  correct",
        "  dog    20      5",
        "  cat    10      9",
        "1 images could not be read",
    ]
    many = Evaluation("hand", tuple(map(str, range(99))), [2] * 99, [1] * 98 + [0])
    assert str(many).splitlines()[2].split() == ["98", "2", "0"]
    assert str(many).splitlines()[-1] == "and 89 better classes"


def test_a_diff() -> None:
    changed = tuple(ComparedImage(str(i), "cat", 0.9, "dog" if i else "emu", 0.8) for i in range(3))
    assert str(Diff("a", "b", 10, changed)).splitlines() == [
        "3 of 10 images change class, 30.0%",
        "  from  to   images",
        "  cat   dog  2",
        "  cat   emu  1",
    ]


def test_a_prediction_and_a_step_are_one_line_in_a_list() -> None:
    likely = Prediction("a.png", ("cat", "dog"), np.array([0.25, 0.75], np.float32))
    assert repr([likely]) == "[Prediction(image='a.png', class_name='dog', probability=0.750)]"
    route = Route({"print": 0.125, "hand": 0.875}, unknown=True)
    assert repr(replace(likely, route=route)).endswith("domain='hand', posterior=0.875, unknown=True)")
    assert repr(Prediction("b.png", ("cat",), None, "broken")) == "Prediction(image='b.png', skipped='broken')"
    assert repr(Step("adapt", domain="hand", images=20)) == "Step(step='adapt', domain='hand', images=20)"


def test_a_model_says_what_it_is_in_a_few_lines() -> None:
    steps = [{"step": "source", "domain": "one"}, {"step": "adapt", "domain": "two", "method": "aad"}]
    model = cosda.Model(tiny_network(), Architecture("tiny", 6, 3), CLASSES, SEEN, steps)
    lines = str(model).splitlines()
    assert lines[0] == "a classifier of 3 classes"
    assert lines[1].split() == ["classes", "a,", "b,", "c"]
    assert lines[-1].endswith("source one → adapt two")
    assert len(repr(model)) < 1000  # the network and the settings of each step are not in it
    assert str(cosda.adapt(model, tiny_benchmark()["two"], method="aad", carry="bank", epochs=1).model).endswith(
        "the base), experts for two"
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    settings = {"source.epochs": 1, "network.bottleneck": 8}
    return cosda.run_chain(tiny_benchmark(features=True), "source", settings=settings, epochs=1, out=tmp_path / "runs")


def test_a_run_is_its_matrix(run: Run) -> None:
    title, header, *rows, below = str(run).splitlines()
    assert title == "source, seed 0: accuracy in percent"
    assert header.split() == run.domains
    matrix = run.matrix()
    assert matrix is not None
    assert [row.split()[2:] for row in rows] == [[f"{100 * value:.1f}" for value in line] for line in matrix]
    assert below.startswith(f"average {run.summary()['average']:.1%}")
    assert len(repr(run)) < 1000
    assert "not measured" in str(replace(run, records=()))
    assert str(Run(run.path, {}, (), (), None, damage="no config")) == f"{run.path.name}: no config"


def test_runs_are_found_by_one_path_and_a_report_has_the_format_of_its_ending(run: Run, tmp_path: Path) -> None:
    found = find_runs(str(tmp_path / "runs"))
    assert found == find_runs([tmp_path / "runs"]) == find_runs(tmp_path / "runs")
    write_report(found, tmp_path / "report.md")
    assert (tmp_path / "report.md").read_text(encoding="utf-8").startswith("# ")
    with pytest.raises(cosda.CosdaError, match="docx"):
        write_report(found, tmp_path / "report.docx")


def test_all_that_a_call_returns_says_what_it_is() -> None:
    shown = ("Result", "Verdict", "Drift", "Evaluation", "Model", "Run", "Diff")
    assert all(issubclass(getattr(cosda, name), Shown) for name in shown)
