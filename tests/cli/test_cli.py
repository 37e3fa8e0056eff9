"""The command line as its user meets it: results, errors, exit codes, speed."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cosda.cli.commands import COMMANDS
from cosda.models.experts import IN_MEMORY
from cosda.records.run import find_runs

ROOT = Path(__file__).parents[2]
QUICK = ["--epochs", "1", "--size", "16", "--encoder", "small", "--set", "source.epochs=2", "--set", "bottleneck=8"]
QUICK[-1] = "network.bottleneck=8"


def test_run_prints_the_matrix_and_json_has_the_same(cosda, photos: Path, tmp_path: Path) -> None:
    words = ["run", photos, "--domains", "one,two", "--method", "cosda", "--out", tmp_path, *QUICK]
    shown = cosda(*words)
    assert shown.code == 0
    assert "source drop" in shown.out
    stored = json.loads(cosda(*words, "--json").out)
    assert stored["label"] == "cosda"
    assert len(stored["accuracy"]) == 2
    assert f"{100 * stored['accuracy'][1][1]:.2f}" in shown.out
    assert stored["select"] == "last"


def test_progress_is_machine_readable_when_not_a_terminal(cosda, photos: Path, tmp_path: Path) -> None:
    answer = cosda("run", photos, "--domains", "one,two", "--out", tmp_path, *QUICK)
    events = [json.loads(line) for line in answer.err.splitlines()]
    assert {event["event"] for event in events} >= {"done", "accuracy"}
    assert cosda("run", photos, "--domains", "one,two", "--seed", 1, "--out", tmp_path, *QUICK, "-q").err == ""


def test_a_chain_with_an_unlabelled_domain(cosda, photos: Path, tmp_path: Path) -> None:
    answer = cosda("run", photos, "--domains", "one,three", "--out", tmp_path, *QUICK, "-q")
    assert answer.code == 0
    assert "no labels" in answer.out


def test_source_adapt_evaluate_predict(cosda, photos: Path, tmp_path: Path, model: Path) -> None:
    adapted = tmp_path / "adapted"
    answer = cosda("adapt", model, photos / "three", "--to", adapted, "--epochs", 1, "--out", tmp_path / "runs", "-q")
    assert answer.code == 0, answer.err
    lineage = json.loads((adapted / "model.json").read_text())["lineage"]
    assert [step["step"] for step in lineage] == ["source", "adapt"]

    measured = json.loads(cosda("evaluate", adapted, photos / "one", "--json", "-q").out)
    assert measured["top1"] > 0.8, "the made-up classes are told apart by their colour"
    assert sum(c["images"] for c in measured["classes"]) == 30

    rows = list(csv.DictReader(io.StringIO(cosda("predict", adapted, photos / "two", "-q").out)))
    assert len(rows) == 30
    assert list(rows[0]) == ["image", "class", "probability", "skipped"]
    listed = json.loads(cosda("predict", adapted, photos / "two", "-q", "--format", "json").out)
    assert [row["class"] for row in listed] == [row["class"] for row in rows]
    right = sum(Path(row["image"]).parts[-2] == row["class"] for row in rows)
    assert right > 20


def test_no_pack_gives_the_same_bits(cosda, photos: Path, tmp_path: Path) -> None:
    words = ["run", photos, "--domains", "one,two", *QUICK, "-q", "--json"]
    packed = json.loads(cosda(*words, "--out", tmp_path / "a").out)
    read = json.loads(cosda(*words, "--out", tmp_path / "b", "--no-pack").out)
    for name in ("records.jsonl", "models/stage-1/head.safetensors"):
        assert (Path(packed["run"]) / name).read_bytes() == (Path(read["run"]) / name).read_bytes()


def test_corrupt_images_are_skipped_and_listed_or_stop_the_run(cosda, photos: Path, tmp_path: Path) -> None:
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(photos, broken)
    (broken / "two/a/00.png").write_bytes(b"not an image")
    words = ["run", broken, "--domains", "one,two", "--out", tmp_path, *QUICK]
    answer = cosda(*words)
    assert answer.code == 0
    assert "a/00.png" in answer.err
    (run,) = find_runs([tmp_path])
    (skipped,) = run.of("skipped")
    assert (skipped["domain"], list(skipped["images"])) == ("two", ["a/00.png"])
    report = cosda("report", tmp_path, "-o", tmp_path / "report.html")
    assert report.code == 0, report.err
    answer = cosda(*words, "--strict", "--seed", 1)
    assert answer.code == 2
    assert "a/00.png" in answer.err


def test_unreadable_images_are_counted_in_the_output_too(cosda, photos: Path, tmp_path: Path, model: Path) -> None:
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(photos / "two", broken)
    (broken / "a/00.png").write_bytes(b"not an image")
    words = ["--to", tmp_path / "to", "--epochs", 1, "--out", tmp_path / "runs", "-q"]
    answer = cosda("adapt", model, broken, *words)
    assert "1 images could not be read" in answer.out
    assert "a/00.png" in answer.err
    assert "1 images could not be read" in cosda("evaluate", model, broken, "-q").out
    measured = json.loads(cosda("evaluate", model, broken, "-q", "--json").out)
    assert list(measured["skipped"]) == ["a/00.png"]


def test_report_in_all_formats(cosda, photos: Path, tmp_path: Path) -> None:
    cosda("run", photos, "--domains", "one,two", "--out", tmp_path / "runs", *QUICK, "-q")
    starts = {"r.html": "<!doctype html>", "r.md": "# ", "r.csv": "table,benchmark,", "r.tex": "% written by cosda"}
    for name, start in starts.items():
        answer = cosda("report", tmp_path / "runs", "-o", tmp_path / name)
        assert answer.code == 0
        assert (tmp_path / name).read_text().lower().startswith(start)
    assert cosda("report", tmp_path / "runs", "-o", tmp_path / "x", "--format", "md").code == 0


def test_doctor(cosda, photos: Path, tmp_path: Path) -> None:
    assert cosda("doctor", photos).code == 0
    found = json.loads(cosda("doctor", photos, "--json").out)
    assert found["ok"]
    assert cosda("doctor", tmp_path / "nowhere").code == 2


def test_methods_lists_settings_with_their_origin(cosda) -> None:
    assert {row["name"] for row in json.loads(cosda("methods", "--json").out)} >= {"source", "bn", "cosda"}
    rows = json.loads(cosda("methods", "cosda", "--benchmark", "office31", "--variant", "authors", "--json").out)
    by_key = {row["key"]: row for row in rows}
    assert by_key["method.restart"]["value"] is True
    assert by_key["method.restart"]["origin"] == "variant authors"
    assert by_key["method.information"]["value"] == 0
    assert "temperature" in cosda("methods", "cosda").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "nowhere"], "nowhere"),
        (["run", "digits", "--method", "cosdas"], "Did you mean 'cosda'?"),
        (["run", "digits", "--domains", "print,hands"], "Did you mean 'hand'?"),
        (["run", "digits", "--set", "temprature=1"], "Did you mean 'temperature'?"),
        (["run", "digits", "--set", "temperature=-1"], "at least"),
        (["run", "digits", "--set", "temperature"], "key=value"),
        (["run", "digits", "--ablate", "no-mixups"], "Did you mean 'no-mixup'?"),
        (["run", "digits", "--variant", "papers"], "Did you mean 'paper'?"),
        (["run", "digits", "--encoder", "smal", "--domains", "print,hand"], "Did you mean 'small'?"),
        (["run", "digits", "--device", "cuda:7", "--domains", "print,hand"], "--device cpu"),
        (["run", "digits", "--set", "adapt.lr_end=1"], "never rise"),
        (["evaluate", "nowhere", "nowhere"], "nowhere"),
        (["predict", "nowhere", "nowhere"], "nowhere"),
        (["adapt", "nowhere", "nowhere", "--to", "x"], "nowhere"),
        (["report", "nowhere"], "nowhere"),
        (["report", ".", "--format", "pdf"], "no runs found"),
        (["methods", "cosdas"], "Did you mean 'cosda'?"),
        (["source", "digits", "--domain", "prin", "--model", "x"], "Did you mean 'print'?"),
    ],
)
def test_bad_input_gets_a_clear_error_and_leaves_nothing(
    cosda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = cosda(*words)
    assert answer.code == 2
    assert said in answer.err
    assert "Traceback" not in answer.err
    left = [
        path for path in tmp_path.rglob("*") if path.is_file() and path.name not in ("config.json", "environment.json")
    ]
    assert [path for path in left if path.suffix != ".lock"] == []


def test_existing_files_are_not_overwritten(cosda, photos: Path, model: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "thesis.txt").write_text("years of work")
    answer = cosda("adapt", model, photos / "three", "--to", taken, "--epochs", 1, "--out", tmp_path / "runs", "-q")
    assert answer.code == 2
    assert (taken / "thesis.txt").read_text() == "years of work"
    assert not (tmp_path / "runs").exists(), "it is said before any work"


def test_a_model_is_replaced_only_if_asked_and_this_is_said_before_training(
    cosda, photos: Path, model: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    words = ["adapt", model, photos / "three", "--to", tmp_path / "to", "--out", runs, "-q"]
    assert cosda(*words, "--epochs", 1).code == 0
    before = sorted(runs.iterdir())
    refused = cosda(*words, "--epochs", 2)
    assert refused.code == 2
    assert "--overwrite" in refused.err
    assert sorted(runs.iterdir()) == before
    first = (tmp_path / "to" / "model.json").read_text()
    assert cosda(*words, "--epochs", 2, "--overwrite").code == 0
    assert (tmp_path / "to" / "model.json").read_text() != first


def test_source_says_how_good_it_is_and_what_comes_next(cosda, photos: Path, tmp_path: Path) -> None:
    words = ["--size", 16, "--encoder", "small", "--set", "network.bottleneck=8", "--out", tmp_path / "runs", "-q"]
    answer = cosda("source", photos, "--domain", "one", "--model", tmp_path / "m", "--epochs", 1, *words)
    assert answer.code == 0, answer.err
    assert re.search(r"one: accuracy \d+\.\d% on 3 held-out images", answer.out)  # a tenth of 30
    assert f"next: cosda adapt {tmp_path / 'm'}" in answer.out
    (folder,) = (tmp_path / "runs" / "sources").glob("*/config.json")
    assert json.loads(folder.read_text())["settings"]["source"]["epochs"] == 1


def test_adapt_measures_where_asked(cosda, photos: Path, model: Path, tmp_path: Path) -> None:
    words = ["adapt", model, photos / "two", "--to", tmp_path / "to", "--epochs", 1, "--out", tmp_path / "runs", "-q"]
    answer = cosda(*words, "--check", photos / "two")
    assert answer.code == 0, answer.err
    assert re.search(r"^ 30 labelled images +\d+% \(\d+% to \d+%\) → \d+% ", answer.out, re.MULTILINE)


def test_predict_gives_the_best_classes_or_all(cosda, photos: Path, model: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(cosda("predict", model, photos / "two", "--top", 2, "-q").out)))
    assert list(rows[0]) == ["image", "class", "probability", "class_2", "probability_2", "skipped"]
    assert all(float(row["probability"]) >= float(row["probability_2"]) for row in rows)
    answer = cosda("predict", model, photos / "two", "--probabilities", "--format", "json", "-q")
    for row in json.loads(answer.out):
        assert max(row["probabilities"], key=row["probabilities"].get) == row["class"]
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert cosda("predict", model, photos / "two", "--format", "xml").code == 2


def test_every_command_has_help_with_an_example(cosda) -> None:
    listed = cosda("--help").out
    for name in (command.__name__.rstrip("_") for command in COMMANDS):
        assert name in listed
        answer = cosda(name, "--help")
        assert answer.code == 0
        assert f"cosda {name}" in re.sub(r"\s+", " ", answer.out.replace("Usage: cosda", "")), name


@pytest.mark.parametrize("name", ["predict", "evaluate"])
def test_help_tells_how_many_experts_are_kept_ready(cosda, name: str) -> None:
    assert f"Default: {IN_MEMORY}." in re.sub(r"\s+", " ", cosda(name, "--help").out)


@pytest.mark.parametrize("name", ["adapt", "run", "bench"])
def test_help_tells_of_the_bank(cosda, name: str) -> None:
    text = re.sub(r"\s+", " ", cosda(name, "--help").out)
    assert "bank: the model as it was and an expert" in text  # of the registry
    assert re.search(rf"cosda {name} [^.]*--carry \S*bank", text)


def test_version(cosda) -> None:
    import cosda as package

    assert cosda("--version").out == f"cosda {package.__version__}\n"


HEAVY = {"torch", "numpy", "PIL", "kornia", "plotly", "sklearn", "jinja2", "safetensors", "ray"}


def test_help_loads_nothing_heavy() -> None:
    """How many seconds that takes is measured by `python -m benchmarks startup`."""
    code = "import sys; sys.argv[1:] = ['run', '--help']\nfrom cosda.__main__ import main\n"
    code += "try:\n    main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "--carry RULE" in done.stdout
    assert not HEAVY & set(done.stderr.split())


def commands_of(page: str) -> list[str]:
    lines = (ROOT / page).read_text().splitlines()
    return [line.strip().split("  ")[0].split(" #")[0] for line in lines if line.startswith("    cosda ")]


@pytest.mark.parametrize("page", ["README.md", "docs/adapt.md", "docs/run.md"])
def test_every_command_of_these_pages_runs(
    cosda, monkeypatch: pytest.MonkeyPatch, photos: Path, tmp_path: Path, page: str
) -> None:
    """As printed, on small data, with fewer epochs and a smaller network where a command trains one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for ours, theirs in (("one", "office"), ("three", "warehouse"), ("three", "today")):
        shutil.copytree(photos / ours, tmp_path / "photos" / theirs)
    (tmp_path / "office31").mkdir()
    for ours, theirs in (("one", "amazon"), ("two", "dslr"), ("two", "webcam")):
        shutil.copytree(photos / ours, tmp_path / "office31" / theirs)
    few = ["--epochs", "1"]
    for change in ("source.epochs=1", "adapt.measure=target", "adapt.validate=100", "adapt.epoch_images=128"):
        few += ["--set", change]
    quick = {
        "run": few,
        "bench": [*few, "--seeds", "1"],
        "adapt": ["--epochs", "1"],
        "source": ["--epochs", "1", "--encoder", "small", "--size", "16"],
    }
    monkeypatch.setenv("WANDB_MODE", "offline")
    commands = commands_of(page)
    assert len(commands) > 5
    for command in commands:
        made = dict(zip(("RUN_A", "RUN_B"), sorted(Path("runs").glob("digits-cosda-*")), strict=False))
        words = [str(made.get(word, word)) for word in shlex.split(command)[1:]]
        if words[0] == "demo":  # the wheel's test runs it
            continue
        answer = cosda(*words, *quick.get(words[0], []))
        answers = {0, 4, 5} if words[0] == "monitor" else {0}
        assert answer.code in answers, f"{command}: {answer.err}"
