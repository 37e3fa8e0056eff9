"""Cells computed by hand, and what may stand in one table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stored_runs import COSDA, SOURCE, WriteRun

from cosda.records.run import Run, find_runs, read_run
from cosda.report import wording
from cosda.report.chapters import section_grids
from cosda.report.grids import ACCURACY, Entry, Grid
from cosda.report.settings import flatten, show
from cosda.report.tables import Cell, Row, Section, build


def section_of(runs: list[Run], benchmark: str = "digits", select: str = "last") -> Section:
    sections = [s for s in build(runs).sections if s.benchmark == benchmark and s.select == select]
    assert len(sections) == 1
    return sections[0]


def cell_of(section: Section, name: str, measure: str, domain: str = "") -> Cell:
    row = next(row for row in section.rows if row.name == name)
    places = [(column.measure, column.domain) for column in section.columns]
    return row.cells[places.index((measure, domain))]


@pytest.mark.parametrize(
    ("measure", "mean", "spread"),
    [
        # Seed 0 ends with 96, 79, 74 and seed 1 with 95, 85, 76.
        ("average", (83 + 256 / 3) / 200, 7 / 3 / 2**0.5 / 100),
        ("adaptation", 0.785, 3 / 2**0.5 / 100),  # (80 + 74) / 2 and (84 + 76) / 2
        ("source_drop", 0.015, 1 / 2**0.5 / 100),  # 98 - 96 and 96 - 95
        ("bwt", -0.0075, 1.5 / 2**0.5 / 100),  # (-2 - 1) / 2 and (-1 + 1) / 2
        ("bwt_targets", 0.0, 2 / 2**0.5 / 100),  # 79 - 80 and 85 - 84
        ("forgetting", 0.01, 1 / 2**0.5 / 100),  # (2 + 1) / 2 and (1 + 0) / 2
        ("forward_transfer", 0.07, 2 / 2**0.5 / 100),  # 56 - 50 and 60 - 52
    ],
)
def test_summary_cells(runs: list[Run], measure: str, mean: float, spread: float) -> None:
    cell = cell_of(section_of(runs), "cosda", measure)
    assert cell.mean == pytest.approx(mean)
    assert cell.spread == pytest.approx(spread)


def test_cells_of_single_domains(runs: list[Run]) -> None:
    section = section_of(runs)
    adapted = {c.domain for c in section.columns if c.measure == "adapted"}
    assert adapted == {"colour", "hand"}
    assert cell_of(section, "cosda", "final", "colour").values == pytest.approx((0.79, 0.85))
    assert cell_of(section, "cosda", "adapted", "hand").values == pytest.approx((0.74, 0.76))


def test_mean_matrix(runs: list[Run]) -> None:
    bn = section_of(runs).rows[1]
    assert bn.mean_matrix()[2] == pytest.approx([0.79, 0.65, 0.62])


def test_baselines_come_first_and_an_interrupted_seed_is_named(runs: list[Run]) -> None:
    section = section_of(runs)
    assert [row.name for row in section.rows] == ["source", "bn", "cosda", "cosda (no-dual-speed)"]
    cosda = section.rows[2]
    assert [run.seed for run in cosda.counted] == [0, 1]
    assert [(p.run.seed, p.reason) for p in cosda.problems] == [(2, "not finished: it has 1 epoch of stage 2 (hand)")]
    assert wording.seeds(cosda) == "2 of 3"


def test_selection_rules_and_benchmarks_never_mix(runs: list[Run]) -> None:
    assert [(s.benchmark, s.select, len(s.rows)) for s in build(runs).sections] == [
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
    assert len(build(find_runs([tmp_path])).sections) == 2


def test_chains_stand_apart(tmp_path: Path, make_run: WriteRun) -> None:
    make_run(tmp_path / "one", SOURCE[0], label="source")
    make_run(tmp_path / "two", SOURCE[0], label="source", domains=["print", "hand", "colour"])
    assert len(build(find_runs([tmp_path])).sections) == 2


def test_one_label_with_other_settings_is_another_row(tmp_path: Path, make_run: WriteRun) -> None:
    for seed in (0, 1):
        for rate in (0.1, 0.2):
            settings = {"adapt": {"lr": rate, "epochs": 3}, "data": {"root": f"/somewhere/{seed}/data"}}
            make_run(tmp_path / f"{rate}-{seed}", COSDA[seed], label="cosda", seed=seed, settings=settings)
    section = section_of(find_runs([tmp_path]))
    assert [row.name for row in section.rows] == ["cosda [adapt.lr=0.1]", "cosda [adapt.lr=0.2]"]
    assert [len(row.counted) for row in section.rows] == [2, 2]


def test_rows_that_differ_in_much_still_have_different_names(tmp_path: Path, make_run: WriteRun) -> None:
    for number in range(4):
        # The settings that are named are shared by two rows each.
        settings = {"adapt": {**dict.fromkeys("abc", number > 1), "z": number}}
        make_run(tmp_path / str(number), COSDA[0], label="cosda", settings=settings)
    names = [row.name for row in section_of(find_runs([tmp_path])).rows]
    assert len(set(names)) == 4
    assert names[1].endswith("…] #2")


def test_a_row_names_only_the_settings_in_which_it_differs_from_most(tmp_path: Path, make_run: WriteRun) -> None:
    usual = {"lr": 0.1, "epochs": 3, "restart": False}
    for number, change in enumerate(({}, {"lr": 0.2}, {"restart": True})):
        make_run(tmp_path / str(number), COSDA[0], label="cosda", settings={"adapt": {**usual, **change}})
    names = [row.name for row in section_of(find_runs([tmp_path])).rows]
    assert names == ["cosda", "cosda [adapt.restart=true]", "cosda [adapt.lr=0.2]"]


def test_between_two_rows_of_a_label_the_other_labels_say_what_is_usual(tmp_path: Path, make_run: WriteRun) -> None:
    for label, rate in (("aad", 0.1), ("aad", 0.2), ("nrc", 0.1)):
        make_run(tmp_path / f"{label}-{rate}", COSDA[0], label=label, settings={"adapt": {"lr": rate}})
    names = [row.name for row in section_of(find_runs([tmp_path])).rows]
    assert names == ["aad", "aad [adapt.lr=0.2]", "nrc"]


def test_a_seed_counts_once(tmp_path: Path, make_run: WriteRun) -> None:
    for name in ("first", "second"):
        make_run(tmp_path / name, SOURCE[0], label="source")
    row = section_of(find_runs([tmp_path])).rows[0]
    assert len(row.counted) == 1
    assert row.problems[0].reason == "seed 0 is already counted from first"


def damaged_row(folder: Path) -> Row:
    return section_of([read_run(folder)]).rows[0]


def test_a_finished_run_without_all_accuracies(tmp_path: Path, make_run: WriteRun) -> None:
    folder = make_run(tmp_path / "run", SOURCE[0][:2], label="source")
    assert "missing" in damaged_row(folder).problems[0].reason


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
    row = damaged_row(folder)
    assert word in row.problems[0].reason
    assert all(cell.mean is None and cell.reason == "no finished run" for cell in row.cells)


@pytest.mark.parametrize("change", [{"label": None}, {"settings": 3}, {"domains": None}, {"seed": "x"}])
def test_a_config_that_cannot_be_placed_is_named(tmp_path: Path, make_run: WriteRun, change: dict[str, object]) -> None:
    folder = make_run(tmp_path / "run", SOURCE[0], label="source")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | change
    if change == {"label": None}:
        del config["label"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tables = build([read_run(folder)])
    assert tables.sections == ()
    assert tables.left_out[0].reason.startswith("damaged config.json")


def best_rows(grid: Grid, title: str) -> list[str]:
    place = [heading.title for heading in grid.columns].index(title)
    return [row.name for row in grid.rows if row.entries[place][0].best]


def test_best(runs: list[Run]) -> None:
    summary = section_grids(section_of(runs))[0]
    assert best_rows(summary, "Average") == ["cosda"]
    assert best_rows(summary, "Source drop") == ["source"]  # lower is better
    assert best_rows(summary, "BWT, targets") == ["source", "cosda"]  # equal at the precision shown


def test_a_single_row_is_not_a_contest(runs: list[Run]) -> None:
    summary = section_grids(section_of(runs, select="oracle"))[0]
    assert best_rows(summary, "Average") == []


@pytest.mark.parametrize(
    ("values", "text"),
    [((0.5,), "50.00"), ((0.5, 0.52), "51.00 ± 1.41"), ((-1e-9,), "0.00"), ((-0.0123,), "-1.23"), ((), "–")],
)
def test_show_entry(values: tuple[float, ...], text: str) -> None:
    assert wording.show_entry(Entry(Cell(values)), ACCURACY) == text


@pytest.mark.parametrize(
    ("values", "published", "text"),
    [((0.5,), 0.48, "48.00 (+2.00)"), ((0.5,), 0.5, "50.00 (+0.00)"), ((), 0.48, "48.00"), ((0.5,), None, "")],
)
def test_show_published(values: tuple[float, ...], published: float | None, text: str) -> None:
    assert wording.show_published(Entry(Cell(values), published=published), ACCURACY) == text


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
    (row,) = section_of(find_runs([tmp_path])).rows
    assert row.problems[0].reason.startswith("failed: the term 'information' became nan. Lower the learning rate: ")
