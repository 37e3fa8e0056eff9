"""Which runs are seeds of one group, what may be compared, what a group is called, and what is wrong with a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stored_runs import COSDA, SOURCE, WriteRun

from cosda.files import flatten
from cosda.records.run import Run, find_runs, read_run
from cosda.report.model.groups import Group, Section, group_runs
from cosda.report.model.settings import show
from cosda.report.tables.summary import summary_table


def section_of(runs: list[Run], benchmark: str = "digits", select: str = "last") -> Section:
    sections = [s for s in group_runs(runs).sections if s.benchmark == benchmark and s.select == select]
    assert len(sections) == 1
    return sections[0]


def test_mean_matrix(runs: list[Run]) -> None:
    bn = section_of(runs).groups[1]
    assert bn.mean_matrix()[2] == pytest.approx([0.79, 0.65, 0.62])


def test_baselines_come_first_and_an_interrupted_seed_is_named(runs: list[Run]) -> None:
    section = section_of(runs)
    assert [group.name for group in section.groups] == ["source", "bn", "cosda", "cosda (no-dual-speed)"]
    cosda = section.groups[2]
    assert [run.seed for run in cosda.counted] == [0, 1]
    assert [(p.run.seed, p.reason) for p in cosda.problems] == [(2, "not finished: it has 1 epoch of stage 2 (hand)")]
    assert cosda.seeds == "2 of 3"


def test_selection_rules_and_benchmarks_never_mix(runs: list[Run]) -> None:
    assert [(s.benchmark, s.select, len(s.groups)) for s in group_runs(runs).sections] == [
        ('a&b"c', "last", 1),
        ("digits", "last", 4),
        ("digits", "oracle", 1),
    ]


@pytest.mark.parametrize(
    "difference",
    [{"fingerprint": "other"}, {"protocol": "transductive"}, {"headline": "per-class"}, {"select": "oracle"}],
)
def test_what_cannot_be_compared_stands_apart(tmp_path: Path, make_run: WriteRun, difference: dict[str, str]) -> None:
    make_run(tmp_path / "one", SOURCE[0], label="source")
    make_run(tmp_path / "two", SOURCE[1], label="source", seed=1, **difference)
    assert len(group_runs(find_runs([tmp_path])).sections) == 2


def test_chains_stand_apart(tmp_path: Path, make_run: WriteRun) -> None:
    make_run(tmp_path / "one", SOURCE[0], label="source")
    make_run(tmp_path / "two", SOURCE[0], label="source", domains=["print", "hand", "colour"])
    assert len(group_runs(find_runs([tmp_path])).sections) == 2


def test_one_label_with_other_settings_is_another_group(tmp_path: Path, make_run: WriteRun) -> None:
    for seed in (0, 1):
        for rate in (0.1, 0.2):
            settings = {"adapt": {"lr": rate, "epochs": 3}, "data": {"root": f"/somewhere/{seed}/data"}}
            make_run(tmp_path / f"{rate}-{seed}", COSDA[seed], label="cosda", seed=seed, settings=settings)
    section = section_of(find_runs([tmp_path]))
    assert [group.name for group in section.groups] == ["cosda [adapt.lr=0.1]", "cosda [adapt.lr=0.2]"]
    assert [len(group.counted) for group in section.groups] == [2, 2]


def test_groups_that_differ_in_much_still_have_different_names(tmp_path: Path, make_run: WriteRun) -> None:
    for number in range(4):
        # The settings that are named are shared by two groups each.
        settings = {"adapt": {**dict.fromkeys("abc", number > 1), "z": number}}
        make_run(tmp_path / str(number), COSDA[0], label="cosda", settings=settings)
    names = [group.name for group in section_of(find_runs([tmp_path])).groups]
    assert len(set(names)) == 4
    assert names[1].endswith("…] #2")


def test_a_group_names_only_the_settings_in_which_it_differs_from_most(tmp_path: Path, make_run: WriteRun) -> None:
    usual = {"lr": 0.1, "epochs": 3, "restart": False}
    for number, change in enumerate(({}, {"lr": 0.2}, {"restart": True})):
        make_run(tmp_path / str(number), COSDA[0], label="cosda", settings={"adapt": {**usual, **change}})
    names = [group.name for group in section_of(find_runs([tmp_path])).groups]
    assert names == ["cosda", "cosda [adapt.restart=true]", "cosda [adapt.lr=0.2]"]


def test_between_two_groups_of_a_label_the_other_labels_say_what_is_usual(tmp_path: Path, make_run: WriteRun) -> None:
    for label, rate in (("aad", 0.1), ("aad", 0.2), ("nrc", 0.1)):
        make_run(tmp_path / f"{label}-{rate}", COSDA[0], label=label, settings={"adapt": {"lr": rate}})
    names = [group.name for group in section_of(find_runs([tmp_path])).groups]
    assert names == ["aad", "aad [adapt.lr=0.2]", "nrc"]


def test_a_seed_counts_once(tmp_path: Path, make_run: WriteRun) -> None:
    for name in ("first", "second"):
        make_run(tmp_path / name, SOURCE[0], label="source")
    group = section_of(find_runs([tmp_path])).groups[0]
    assert len(group.counted) == 1
    assert group.problems[0].reason == "seed 0 is already counted from first"


def damaged_group(folder: Path) -> Group:
    return section_of([read_run(folder)]).groups[0]


def test_a_finished_run_without_all_accuracies(tmp_path: Path, make_run: WriteRun) -> None:
    folder = make_run(tmp_path / "run", SOURCE[0][:2], label="source")
    assert "missing" in damaged_group(folder).problems[0].reason


@pytest.mark.parametrize(
    ("record", "word"),
    [
        ({"stage": 1}, "no 'kind'"),
        ({"kind": "accuracy", "stage": 2, "epoch": None, "domain": "hand", "split": "test"}, "no 'correct'"),
        (
            {"kind": "accuracy", "epoch": None, "split": "test", "stage": 2, "domain": "hand"}
            | {"images": [0], "correct": [0]},
            "zero",
        ),
    ],
)
def test_damaged_records_are_a_reason(tmp_path: Path, make_run: WriteRun, record: dict[str, object], word: str) -> None:
    folder = make_run(tmp_path / "run", SOURCE[0], label="source")
    with (folder / "records.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    group = damaged_group(folder)
    assert word in group.problems[0].reason
    (row,) = summary_table(section_of([read_run(folder)])).rows
    assert all(cell.mean is None and cell.reason == "no finished run" for cell in row.cells)


@pytest.mark.parametrize(
    "change", [{"label": None}, {"settings": 3}, {"domains": None}, {"seed": "x"}, {"classes": None}]
)
def test_a_config_that_cannot_be_placed_is_named(tmp_path: Path, make_run: WriteRun, change: dict[str, object]) -> None:
    folder = make_run(tmp_path / "run", SOURCE[0], label="source")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | change
    if change == {"label": None}:
        del config["label"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    grouped = group_runs([read_run(folder)])
    assert grouped.sections == ()
    assert grouped.left_out[0].reason.startswith("damaged config.json")


def test_settings_are_flat_and_without_paths() -> None:
    tree = {"data": {"root": "/home/me/office31", "sizes": [1, "/a/b"]}, "seed": None, "method": {}}
    flat = {key: show(value) for key, value in flatten(tree).items()}
    assert flat == {"data.root": "office31", "data.sizes": "[1, b]", "seed": "null", "method": "{}"}
    assert show("timm/resnet18") == "timm/resnet18"
    assert show("C:\\data\\x") == "x"


def test_a_failed_run_says_why(tmp_path: Path, make_run: WriteRun) -> None:
    make_run(tmp_path / "one", [[90, 50, 40]], label="cosda", finished=False)
    reason = {"reason": "the term 'information' became nan. Lower the learning rate.\nmore"}
    (tmp_path / "one" / "failed.json").write_text(json.dumps(reason))
    (group,) = section_of(find_runs([tmp_path])).groups
    assert group.problems[0].reason.startswith("failed: the term 'information' became nan. Lower the learning rate: ")
