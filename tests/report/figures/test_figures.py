"""What the figures draw: the front, the curves with the chosen epochs, single classes, confusions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from stored_runs import COSDA, SOURCE, WriteRun, add_confusions, add_records, office_epochs, write_bank_run

from cosda.records.run import Run, read_run
from cosda.report.figures import classes, epochs, routing, style, trade_off
from cosda.report.figures.confusions import confusion_panel, confusions, read_confusions
from cosda.report.formats.run_pages import run_pages
from cosda.report.model.groups import Section, group_runs
from cosda.report.tables.contents import contents


def section_of(*runs: Run) -> Section:
    return group_runs(runs).sections[0]


def trace(figure: style.Plot, name: str) -> style.Plot:
    found: style.Plot = next(t for t in figure["data"] if t.get("name") == name)
    return found


# --- Learning against forgetting --------------------------------------------------------------------------------------


def beaten(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return other[0] <= one[0] and other[1] >= one[1] and other != one


def test_the_front_is_what_no_other_point_beats() -> None:
    random = np.random.default_rng(0)
    for size in (1, 2, 7, 30):
        points = [(float(x), float(y)) for x, y in random.integers(0, 9, (size, 2))]
        front = [points[i] for i in trade_off.pareto_front(points)]
        assert set(front) == {p for p in points if not any(beaten(p, other) for other in points)}
        assert front == sorted(set(front))


def test_the_trade_off_of_a_chain(runs: list[Run]) -> None:
    section = next(s for s in group_runs(runs).sections if len(s.groups) == 4)
    points = trade_off.points_of_chain(section)
    figure = trade_off.plot(points, style.palette([section]))
    means = {t["meta"]: (t["x"][0], t["y"][0]) for t in figure["data"] if t.get("text")}
    assert means["cosda"] == (1.5, 78.5)
    front = trace(figure, "Pareto front")
    # "bn" and "cosda (no-dual-speed)" learn less than "cosda" and forget more.
    assert list(zip(front["x"], front["y"], strict=True)) == [means["source"], means["cosda"]]


def test_the_trade_off_over_all_pairs(paper_runs: list[Run]) -> None:
    table = next(table for table in contents(paper_runs).across if table.kind == "pairs")
    points = {point.name: point for point in trade_off.points_of_pairs(table)}
    assert set(points) == {"source", "nrc", "cosda", "cosda (no-mi)"}  # of cosda+nrc one pair is missing
    assert len(points["cosda"].gains) == 2
    assert points["nrc"].seeds == ("seed 0",)  # seed 1 was interrupted in one pair
    assert points["cosda"].centre[1] == pytest.approx(
        (87 + 89 + 74 + 98 + 73 + 100 + 86 + 90 + 75 + 99 + 75 + 99) / 1200
    )
    assert points["cosda"].published is not None


def test_names_of_points_do_not_meet() -> None:
    near = [trade_off.Point(f"method {i}", (0.001 * i,), (0.5 + 0.0001 * i,), ("seed 0",)) for i in range(4)]
    far = trade_off.Point("far", (0.9,), (0.9,), ("seed 0",))
    figure = trade_off.plot([*near, far], style.Palette(tuple(p.name for p in [*near, far])))
    sides = [t["textposition"] for t in figure["data"] if t["mode"] == "markers+text"]
    assert len(sides[:-1]) == len(set(sides[:-1]))
    assert sides[-1] == "middle left"  # at the right edge towards the middle


# --- Routing ----------------------------------------------------------------------------------------------------------


def test_where_images_of_each_domain_went(bank_runs: list[Run]) -> None:
    section = next(section for section in group_runs(bank_runs).sections if section.benchmark == "digits")
    figure = routing.routing(section, style.palette([section]))
    assert figure is not None
    (panel,) = figure.panels  # the source model is no bank
    assert (panel.title, panel.group) == ("aad (carry bank)", "aad (carry bank)")
    assert panel.plot is not None
    (heat_map,) = panel.plot["data"]
    assert heat_map["z"] == [[92, 7, 1], [4, 96, 0], [0, 0.5, 99.5]]  # the mean of two seeds
    assert heat_map["text"][0] == ["92.00", "7.00", "1.00"]
    assert heat_map["hovertext"][0][1] == (
        "7.00 % of print<br>to the expert of colour<br>(mixed: 11.00 %, unknown: 1.00 %)"
    )
    frames = [(round(shape["x0"] + 0.48), round(shape["y0"] + 0.48)) for shape in panel.plot["layout"]["shapes"]]
    assert frames == [(0, 0), (1, 1), (2, 2)]


def test_frames_are_at_the_own_expert_wherever_it_stands(tmp_path: Path) -> None:
    folder = write_bank_run(tmp_path / "run")
    facts = {"known": ["print", "older", "hand"], "sent": [1, 1, 2], "mixed": 0, "unknown": 0, "crossfitted": False}
    add_records(folder, [{"kind": "routing", "stage": 3, "domain": name, **facts} for name in ("print", "hand")])
    plot = routing.routing_map([read_run(folder)])
    assert plot["data"][0]["z"] == [[25, 25, 50]] * 2
    assert [(shape["x0"], shape["y0"]) for shape in plot["layout"]["shapes"]] == [(-0.48, -0.48), (1.52, 0.52)]


def test_without_a_bank_there_is_no_figure_of_routing(runs: list[Run]) -> None:
    for section in group_runs(runs).sections:
        assert routing.routing(section, style.palette([section])) is None


def test_of_many_domains_the_cells_have_no_decimals_and_keep_their_width(tmp_path: Path, make_run: WriteRun) -> None:
    names = [f"domain {i}" for i in range(12)]
    folder = make_run(tmp_path / "run", [[90] * 12] * 12, label="aad (carry bank)", domains=names, ablation=None)
    facts = {"known": names, "mixed": 0, "unknown": 0, "crossfitted": False}
    sent = [[201 if i == j else 1 for j in range(12)] for i in range(12)]
    add_records(
        folder,
        [
            {"kind": "routing", "stage": 11, "domain": name, "sent": row, **facts}
            for name, row in zip(names, sent, strict=True)
        ],
    )
    section = section_of(read_run(folder))
    figure = routing.routing(section, style.palette([section]))
    assert figure is not None
    assert figure.size == "wide"
    assert figure.panels[0].plot is not None
    assert figure.panels[0].plot["data"][0]["text"][1][:3] == ["0", "95", "0"]
    assert figure.panels[0].plot["layout"]["width"] == 620  # so a phone scrolls it


# --- Epochs -----------------------------------------------------------------------------------------------------------


def pair_run(make_run: WriteRun, folder: Path) -> Path:
    return make_run(folder, [[90, 60], [88, 75]], label="cosda", domains=["a", "b"], epochs=office_epochs(75, 88))


def test_accuracy_curves_with_the_chosen_epoch(tmp_path: Path, make_run: WriteRun) -> None:
    folder = pair_run(make_run, tmp_path / "run")
    figure = epochs.accuracy_curves(read_run(folder))
    assert trace(figure, "target of the stage")["y"] == [72, 76, 75]
    assert trace(figure, "a (source)")["y"] == [89, 88, 88]
    assert (trace(figure, "chosen epoch")["x"], trace(figure, "chosen epoch")["y"]) == ([3], [75])
    records = folder / "records.jsonl"
    records.write_text(records.read_text().replace('"rule": "last", "epoch": 2', '"rule": "snd", "epoch": 1'))
    mark = trace(epochs.accuracy_curves(read_run(folder)), "chosen epoch")
    assert (mark["x"], mark["y"]) == ([2], [76])


def test_each_finished_stage_has_its_chosen_epoch(tmp_path: Path, make_run: WriteRun) -> None:
    finished = read_run(make_run(tmp_path / "old", COSDA[0], label="cosda"))
    assert epochs.chosen_epochs(finished) == {1: 2, 2: 2}
    mark = trace(epochs.accuracy_curves(finished), "chosen epoch")
    assert mark["x"] == [3, 6]
    interrupted = read_run(make_run(tmp_path / "half", COSDA[2], label="cosda", finished=False))
    assert epochs.chosen_epochs(interrupted) == {1: 2}
    assert not epochs.accuracy_curves(read_run(make_run(tmp_path / "none", SOURCE[0], label="source")))["data"]


def test_scores_are_stretched_and_a_constant_one_stays_at_the_bottom(tmp_path: Path, make_run: WriteRun) -> None:
    figure = epochs.score_curves(read_run(pair_run(make_run, tmp_path / "run")))
    assert trace(figure, "snd")["y"] == [0, 1, 0.5]
    assert trace(figure, "agreement")["y"] == [0, 0, 0]


# --- Classes ----------------------------------------------------------------------------------------------------------


def test_bars_of_each_class_before_and_after(tmp_path: Path, make_run: WriteRun) -> None:
    matrix = [[[20, 20, 20], [10, 4, None]], [[20, 20, 20], [18, 1, None]]]
    names = {"domains": ["a", "b"], "classes": ["x", "y", "z"]}
    runs = [read_run(make_run(tmp_path / f"run{seed}", matrix, label="cosda", seed=seed, **names)) for seed in (0, 1)]
    figure, left_out = classes.class_bars(section_of(*runs), style.Palette(("cosda",)))
    assert figure is not None
    assert left_out == 0
    assert figure["layout"]["xaxis"]["ticktext"] == ["y", "x"]  # the hardest first; no image of z is measured
    assert trace(figure, "before")["y"] == [20, 50]
    assert trace(figure, "cosda")["y"] == [5, 90]


def test_of_very_many_classes_those_that_change_most(tmp_path: Path, make_run: WriteRun) -> None:
    size = 345
    before, after = [10] * size, [10] * size
    after[7], after[300] = 20, 0
    matrix = [[[20] * size, before], [[20] * size, after]]
    names = {"domains": ["a", "b"], "classes": [f"class {i}" for i in range(size)]}
    folder = make_run(tmp_path / "run", matrix, label="cosda", **names)
    counts = np.diag(np.full(size, 9))
    counts[4, 5], counts[6, 3] = 8, 2
    add_confusions(folder, 1, [counts, counts])
    section = section_of(read_run(folder))
    figure, left_out = classes.class_bars(section, style.Palette(("cosda",)))
    assert figure is not None
    assert left_out == size - classes.MOST_BARS
    assert {"class 7", "class 300"} <= set(figure["layout"]["xaxis"]["ticktext"])
    found = confusions(section, style.Palette(("cosda",)))
    assert found is not None
    assert found.title == "Confusions on b"
    assert found.panels[0].plot is None
    assert found.panels[0].lines == ("class 4 taken for class 5: 8 of 17", "class 6 taken for class 3: 2 of 11")


def test_confusions_are_shares_of_the_true_class() -> None:
    panel = confusion_panel("", np.array([[3, 1], [0, 0]]), ["x", "y"])
    assert panel.plot is not None
    assert panel.plot["data"][0]["z"] == [[75, 25], [0, 0]]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"PK but no zip", "is damaged"), ([[1, 2, 3]], "expected counts of 2 by 2 classes"), (None, "is missing")],
)
def test_damaged_confusions_are_a_note(tmp_path: Path, make_run: WriteRun, content: object, reason: str) -> None:
    folder = pair_run(make_run, tmp_path / "run")
    add_confusions(folder, 1, [content if isinstance(content, list) else [[1, 0], [0, 1]]] * 2)
    path = folder / "confusion" / "stage-1.npz"
    if content is None:
        path.unlink()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    found = read_confusions(read_run(folder), 1)
    assert isinstance(found, str)
    assert reason in found
    (page,) = run_pages([section_of(read_run(folder))])[0]
    assert page.notes == ((f"Confusions: {found}.",) if content is not None else ())
