"""Which runs are adaptations that were judged, and the lineage of their models."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from stored_runs import ACCEPTED, COSDA, EARLIER, STOPPED, WriteRun, add_records, write_adaptation

from cosda.files import write_json
from cosda.records.run import Run, find_runs, read_run
from cosda.records.verdict import FOLDER
from cosda.report.model.adaptations import Adaptation, Step, split_adaptations


def adaptation_of(folder: Path) -> Adaptation:
    [found], others = split_adaptations([read_run(folder)])
    assert others == []
    return found


def test_runs_with_a_verdict_are_apart_from_the_others(tmp_path: Path, make_run: WriteRun) -> None:
    make_run(tmp_path / "chain", COSDA[0], label="cosda")
    unjudged = write_adaptation(tmp_path / "older")
    shutil.rmtree(unjudged / FOLDER)
    write_adaptation(tmp_path / "judged")
    broken = write_adaptation(tmp_path / "broken")
    (broken / "config.json").write_text("{")
    nameless = write_adaptation(tmp_path / "nameless")
    write_json(nameless / "config.json", {"kind": "adapt"})
    found, others = split_adaptations(find_runs([tmp_path]))
    assert [one.run.path.name for one in found] == ["judged"]
    assert [run.path.name for run in others] == ["broken", "chain", "nameless", "older"]


def test_the_lineage_has_the_true_names(tmp_path: Path) -> None:
    found = adaptation_of(write_adaptation(tmp_path / "run"))
    assert found.lineage == (
        Step("print", "trained on labels", "2026-01-02"),
        Step("colour", "aad (carry bank)", "2026-02-03", "doubtful"),
        Step("hand", "aad (carry bank)", "2026-03-04", "accepted"),
    )
    assert found.chain == ("print", "colour", "hand")


def test_a_run_that_made_no_model_goes_on_from_the_incoming_one(tmp_path: Path) -> None:
    found = adaptation_of(write_adaptation(tmp_path / "run", STOPPED))
    assert [step.name for step in found.lineage] == ["print", "colour", "hand"]
    assert found.lineage[-1].verdict == "rejected"


def test_steps_of_models_from_elsewhere(tmp_path: Path) -> None:
    run = write_adaptation(tmp_path / "run", STOPPED)
    steps = [{"wrapped": "ResNet"}, {"step": "profile", "domain": "office"}, {"step": "drop", "domain": "attic"}, {}]
    write_json(run / "models" / "stage-0" / "model.json", {"lineage": steps})
    assert [(step.name, step.how) for step in adaptation_of(run).lineage][:-1] == [
        ("ResNet", "wrapped"),
        ("office", "profile made"),
        ("attic", "taken out"),
        ("–", ""),
    ]


def test_what_is_damaged_is_a_problem_of_that_run_alone(tmp_path: Path) -> None:
    for name in ("a-verdict", "b-images", "c-lineage", "d-whole"):
        write_adaptation(tmp_path / name)
    (tmp_path / "a-verdict" / FOLDER / "verdict.json").write_text("{}")
    (tmp_path / "b-images" / FOLDER / "images.json").write_text("[")
    (tmp_path / "c-lineage" / "models" / "stage-1" / "model.json").write_text('{"lineage": [3]}')
    found = {one.run.path.name: one for one in split_adaptations(find_runs([tmp_path]))[0]}
    [problem] = found["a-verdict"].problems
    assert problem.startswith("verdict/verdict.json is damaged: ")
    assert (found["a-verdict"].verdict, found["a-verdict"].word, found["a-verdict"].domain) == (
        None,
        "unreadable",
        "hand",
    )
    assert found["b-images"].problems[0].startswith("verdict/images.json is damaged: ")
    assert found["b-images"].verdict == ACCEPTED
    assert found["c-lineage"].problems[0].startswith("models/stage-1/model.json is damaged: ")
    assert [step.name for step in found["c-lineage"].lineage] == ["hand"]
    assert found["d-whole"].problems == ()


def test_adaptations_are_in_the_order_of_their_dates(tmp_path: Path) -> None:
    first = write_adaptation(tmp_path / "z", replace(ACCEPTED, domain="early"))
    steps = [EARLIER[0], {"step": "adapt", "date": "2025"}]
    write_json(first / "models" / "stage-1" / "model.json", {"lineage": steps})
    write_adaptation(tmp_path / "a", replace(ACCEPTED, domain="late"))
    runs: list[Run] = find_runs([tmp_path])
    assert [one.domain for one in split_adaptations(runs)[0]] == ["early", "late"]
    assert split_adaptations(runs[::-1])[0] == split_adaptations(runs)[0]


def test_damaged_records_are_no_problem_here(tmp_path: Path) -> None:
    run = write_adaptation(tmp_path / "run")
    add_records(run, [{"kind": "validation", "stage": 1, "epoch": 2}])
    assert adaptation_of(run).problems == ()
