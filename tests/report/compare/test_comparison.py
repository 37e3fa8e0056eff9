"""`cosda compare` on stored runs: numbers small enough to check on paper."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from stored_runs import BN, COSDA, SOURCE, add_records, write_bank_run, write_run

from cosda import metrics
from cosda.__main__ import main
from cosda.errors import CosdaError
from cosda.files import write_json
from cosda.report.compare.comparison import Comparison, Difference, Value, compare
from cosda.report.compare.text import tables


@pytest.fixture
def bn(tmp_path: Path) -> Path:
    return timed(write_run(tmp_path / "digits-bn-s0-1", BN[0], label="bn"), seconds=2.0)


@pytest.fixture
def cosda(tmp_path: Path) -> Path:
    return timed(write_run(tmp_path / "digits-cosda-s0-2", COSDA[0], label="cosda"), seconds=3.0)


def timed(run: Path, seconds: float) -> Path:
    facts = {"stage": 1, "epoch": 0, "images": 600, "peak_bytes": 2**28}
    lines = [facts | {"seconds": seconds}, facts | {"epoch": 1, "seconds": seconds}, facts | {"epoch": 2, "seconds": 9}]
    (run / "timing.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return run


def changed(run: Path, **config: object) -> Path:
    """The run with other facts in its config.json."""
    write_json(run / "config.json", json.loads((run / "config.json").read_bytes()) | config)
    return run


def names(differences: tuple[Difference, ...]) -> list[str]:
    return [one.name for one in differences]


def text(comparison: Comparison, title: str) -> list[dict[str, str]]:
    return next(rows for name, rows in tables(comparison) if name.startswith(title))


def test_a_run_and_itself_differ_in_nothing(cosda: Path) -> None:
    same = compare(cosda, cosda)
    assert (same.identity, same.settings, same.environment, same.warnings) == ((), (), (), ())
    assert {number.difference for at in same.accuracy for number in at.domains} == {0.0}
    assert {number.ratio for number in same.cost} == {1.0}


def test_identity_and_settings(bn: Path, cosda: Path) -> None:
    found = compare(bn, cosda)
    assert found.identity == (
        Difference("method", Value("bn"), Value("cosda")),
        Difference("variant", None, Value("paper")),
    )
    assert found.settings == (Difference("method.temperature", None, Value(0.07)),)
    assert not found.warnings


def test_settings_show_where_they_came_from_and_what_is_special_to_a_target(tmp_path: Path, cosda: Path) -> None:
    settings = {"data": {"root": "/home/somebody/data", "batch_size": 64}, "adapt": {"lr": 0.01, "epochs": 3}}
    other = write_run(
        tmp_path / "other",
        COSDA[0],
        label="cosda",
        settings={**settings, "method": {"temperature": 0.07}},
        stages={"hand": {"adapt": {"epochs": 9}}},
        origins={"adapt.lr": "--set lr=0.01", "stage.hand.adapt.epochs": "preset digits, hand"},
    )
    found = compare(cosda, other)
    assert found.settings == (
        Difference("adapt.lr", Value(0.002, "preset digits"), Value(0.01, "--set lr=0.01")),
        Difference("stage.hand.adapt.epochs", None, Value(9, "preset digits, hand")),
    )
    rate, special = text(found, "Settings")
    assert list(rate.values()) == ["adapt.lr", "0.002", "preset digits", "0.01", "--set lr=0.01"]
    assert list(special.values()) == ["stage.hand.adapt.epochs", "–", "–", "9", "preset digits, hand"]


def test_matrices_side_by_side(bn: Path, cosda: Path) -> None:
    found = compare(bn, cosda)
    assert [at.after for at in found.accuracy] == ["print", "colour", "hand"]
    rows = [[(number.a, number.b) for number in at.domains] for at in found.accuracy]
    assert [[a for a, _ in row] for row in rows] == [[n / 100 for n in row] for row in BN[0]]
    assert [[b for _, b in row] for row in rows] == [[n / 100 for n in row] for row in COSDA[0]]
    last = text(found, "Accuracy")[-1]
    assert last == {
        "after": "hand",
        "print": "80.00 → 96.00 (+16.00)",
        "colour": "66.00 → 79.00 (+13.00)",
        "hand": "60.00 → 74.00 (+14.00)",
    }
    assert text(found, "Accuracy")[0]["print"] == "98.00 → 98.00 (0.00)"


def test_summary_numbers(bn: Path, cosda: Path) -> None:
    rows = {row[""]: [row["A"], row["B"], row["B − A"]] for row in text(compare(bn, cosda), "Summary")}
    assert rows == {
        "Average": ["68.67", "83.00", "+14.33"],  # (80+66+60)/3, (96+79+74)/3
        "Adaptation": ["65.00", "77.00", "+12.00"],  # (70+60)/2, (80+74)/2
        "Source drop": ["18.00", "2.00", "-16.00"],
        "Harmonic mean": ["71.72", "85.46", "+13.73"],  # 2·65·80/145, 2·77·96/173
        "BWT": ["-11.00", "-1.50", "+9.50"],  # (-18-4)/2, (-2-1)/2
        "BWT, targets": ["-4.00", "-1.00", "+3.00"],
        "Forgetting": ["11.00", "1.50", "-9.50"],
        "Forward transfer": ["1.00", "6.00", "+5.00"],  # 51-50, 56-50
    }


def test_cost_and_its_ratio(bn: Path, cosda: Path) -> None:
    seconds, speed, memory = compare(bn, cosda).cost
    assert (seconds.a, seconds.b, seconds.ratio) == (2.0, 3.0, 1.5)  # medians: one slow epoch says little
    assert (speed.a, speed.b) == (300.0, 200.0)
    assert (memory.a, memory.ratio) == (256.0, 1.0)


def test_a_run_without_epochs_has_no_cost(tmp_path: Path, bn: Path) -> None:
    source = write_run(tmp_path / "source", SOURCE[0], label="source")
    found = compare(source, bn)
    assert [(number.a, number.ratio) for number in found.cost] == [(None, None)] * 3
    assert text(found, "Cost")[0] == {"": "seconds per epoch", "A": "–", "B": "2", "B / A": "–"}
    assert compare(source, source).cost == ()


def test_an_unfinished_run_has_settings_and_no_results(tmp_path: Path, bn: Path) -> None:
    half = write_run(tmp_path / "half", COSDA[2], label="cosda", seed=2, finished=False)
    found = compare(bn, half)
    assert names(found.identity) == ["method", "variant", "seed"]
    assert names(found.settings) == ["method.temperature"]
    assert found.missing == {"b": "not finished: it has 1 epoch of stage 2 (hand)"}
    assert text(found, "Accuracy")[-1]["print"] == "80.00 → –"
    assert {number.b for number in found.summary} == {None}
    neither = compare(half, half)
    assert set(neither.missing) == {"a", "b"}
    assert (neither.accuracy, neither.summary) == ((), ())


def test_other_chains_are_compared_on_the_domains_of_both(tmp_path: Path, cosda: Path) -> None:
    pair = write_run(tmp_path / "pair", [[90, 40], [70, 65]], label="cosda", domains=["hand", "print"])
    found = compare(cosda, pair)
    assert found.warnings == (
        "the chains differ: only domains of both are shown, and summaries are over other domains.",
    )
    own, last = found.accuracy
    assert [(number.name, number.a, number.b) for number in own.domains] == [("print", 0.98, 0.65), ("hand", 0.74, 0.9)]
    assert [(number.name, number.a, number.b) for number in last.domains] == [
        ("print", 0.96, 0.65),
        ("hand", 0.74, 0.7),
    ]
    strange = write_run(tmp_path / "strange", [[90, 40], [70, 65]], label="cosda", domains=["x", "y"])
    assert compare(cosda, strange).accuracy == ()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("fingerprint", "000000", "the data differ"),
        ("protocol", "transductive", "the protocols differ"),
        ("select", "oracle", "the selection rules differ"),
        ("headline", "per-class", "the accuracies differ"),
        ("benchmark", "office31", "the benchmarks differ"),
        ("classes", ["cat", "dog"], "the classes differ"),
    ],
)
def test_what_may_not_be_compared_is_said(key: str, value: object, words: str, tmp_path: Path, cosda: Path) -> None:
    other = write_run(tmp_path / "other", COSDA[1], label="cosda", **{key: value})
    found = compare(cosda, other)
    assert len(found.warnings) == 1
    assert words in found.warnings[0]
    assert len(found.identity) == 1


def test_other_machines_are_shown_and_said(bn: Path, cosda: Path) -> None:
    write_json(bn / "environment.json", {"python": "3.11.7", "versions": {"torch": "2.6.0"}, "cores": 2})
    write_json(cosda / "environment.json", {"python": "3.11.7", "versions": {"torch": "2.7.0"}, "cores": 8})
    found = compare(bn, cosda)
    assert names(found.environment) == ["versions.torch", "cores"]
    assert found.warnings == ("the machines differ: seconds and memory are not those of the methods alone.",)


# --- Errors -----------------------------------------------------------------------------------------------------------


def test_what_is_no_run_is_an_error(tmp_path: Path, cosda: Path) -> None:
    with pytest.raises(CosdaError, match="does not exist"):
        compare(tmp_path / "nothing", cosda)
    with pytest.raises(CosdaError, match="not a run folder"):
        compare(cosda, tmp_path)
    with pytest.raises(CosdaError, match="training of a source model"):
        compare(cosda, changed(write_run(tmp_path / "source", SOURCE[0], label="source"), kind="source"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", '{"kind": "adapt"'),
        ("config.json", '{"kind": "adapt", "label": "x"}'),
        ("records.jsonl", "[1]\n"),
        ("records.jsonl", '{"stage": 1}\n'),
        ("timing.jsonl", '{"stage": 1, "epoch": 0}\n'),
        ("environment.json", "no"),
    ],
)
def test_a_damaged_run_is_an_error(name: str, content: str, bn: Path, cosda: Path) -> None:
    (bn / name).write_text(content, encoding="utf-8")
    with pytest.raises(CosdaError, match="damaged"):
        compare(bn, cosda)


# --- The command ------------------------------------------------------------------------------------------------------


def call(monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["cosda", "compare", *map(str, words)])
    main()


def test_the_command_prints_what_differs(
    bn: Path, cosda: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        call(monkeypatch, bn, cosda)
    assert not stop.value.code
    shown = capsys.readouterr().out
    assert "80.00 → 96.00 (+16.00)" in shown
    assert "method.temperature" in shown
    assert "Where they ran: the same" in shown


def test_the_same_as_json(
    bn: Path, cosda: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        call(monkeypatch, bn, cosda, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["a"] == {"run": str(bn), "label": "bn", "finished": True, "missing": None}
    assert found["settings"] == [{"name": "method.temperature", "a": None, "b": {"value": 0.07}}]
    assert found["accuracy"][2]["domains"][0] == {"name": "print", "a": 0.8, "b": 0.96, "difference": 0.96 - 0.8}
    assert [one["name"] for one in found["summary"]] == list(metrics.MEASURES)
    assert found["cost"][0] == {"name": "seconds per epoch", "a": 2.0, "b": 3.0, "ratio": 1.5}


def test_a_wrong_folder_is_exit_code_2(
    cosda: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        call(monkeypatch, cosda, cosda / "nothing")
    assert stop.value.code == 2
    assert "does not exist" in capsys.readouterr().err


def test_comparing_needs_no_torch() -> None:
    code = "import cosda.report.compare.comparison, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "plotly", "sklearn"} & set(done.stdout.split())


# --- Domain banks -----------------------------------------------------------------------------------------------------


def test_two_banks(tmp_path: Path) -> None:
    found = compare(write_bank_run(tmp_path / "a"), write_bank_run(tmp_path / "b", seed=1))
    assert text(found, "Experts") == [
        {"domain": "print", "own expert": "98.00 → 96.00 (-2.00)", "images sent to it": "90.00 → 94.00 (+4.00)"},
        {"domain": "colour", "own expert": "80.00 → 84.00 (+4.00)", "images sent to it": "97.00 → 95.00 (-2.00)"},
        {"domain": "hand", "own expert": "76.00 → 78.00 (+2.00)", "images sent to it": "99.00 → 100.00 (+1.00)"},
    ]
    (colour,) = (one for one in found.as_json()["experts"] if one["domain"] == "colour")
    assert (colour["accuracy"]["a"], colour["accuracy"]["b"]) == (0.8, 0.84)
    assert colour["found"]["difference"] == pytest.approx(-0.02)


def test_a_bank_and_a_single_model(tmp_path: Path, cosda: Path) -> None:
    found = compare(cosda, write_bank_run(tmp_path / "bank"))
    assert text(found, "Experts")[2] == {"domain": "hand", "own expert": "– → 76.00", "images sent to it": "– → 99.00"}
    assert found.as_json()["experts"][0]["found"] == {"name": "found", "a": None, "b": 0.9, "difference": None}
    assert not compare(cosda, cosda).experts


def test_a_bank_with_damaged_routing_is_an_error(tmp_path: Path, cosda: Path) -> None:
    bank = write_bank_run(tmp_path / "bank")
    add_records(bank, [{"kind": "routing", "stage": 2, "domain": "hand", "known": ["print"], "sent": []}])
    with pytest.raises(CosdaError, match="is damaged"):
        compare(cosda, bank)
