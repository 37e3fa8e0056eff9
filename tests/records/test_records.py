"""The run folder: one writer, facts that survive a kill, and damage that is named."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cosda.errors import CosdaError
from cosda.files import digest, write_json
from cosda.records.folder import RunFolder
from cosda.records.run import RoutedImages, Run, find_runs, read_run
from cosda.report import render_report
from cosda.report.model.groups import group_runs

CONFIG = {
    "kind": "adapt",
    "label": "cosda",
    "method": "cosda",
    "benchmark": "b",
    "fingerprint": "f",
    "protocol": "inductive",
    "headline": "top1",
    "select": "last",
    "domains": ["one", "two", "three"],
    "classes": ["x", "y"],
    "seed": 3,
    "settings": {},
}
R = [[0.9, 0.8, 0.6], [0.4, 0.7, 0.75], [0.3, 0.35, 0.65]]  # row: domain; column: stage


def accuracy(stage, domain, share, epoch=None, split="test"):
    facts = {"stage": stage, "epoch": epoch, "domain": domain, "split": split}
    return {"kind": "accuracy", **facts, "images": [10, 90], "correct": [0, round(100 * share)]}


def full_records():
    return [accuracy(s, name, R[d][s]) for s in range(3) for d, name in enumerate(CONFIG["domains"])]


def a_run(records, **config):
    return Run(Path("x"), CONFIG | config, tuple(records), (), None)


def write_run(path, **config):
    with RunFolder(path, CONFIG | config) as folder:
        for record in full_records():
            folder.append(record.pop("kind"), **record)
        folder.finish(stages=2)
    return path


# --- Writing ----------------------------------------------------------------------------------------------------------


def test_facts_come_back_in_order_and_with_every_character(tmp_path):
    with RunFolder(tmp_path / "run", CONFIG) as folder:
        folder.append("loss", stage=1, terms={"a": 0.1}, name="a\u2028b\x85c\nd€\x1e")
        folder.append("accuracy", stage=2, epoch=None)
        folder.append_timing(seconds=1.5)
    run = read_run(tmp_path / "run")
    assert run.records == (
        {"kind": "loss", "stage": 1, "terms": {"a": 0.1}, "name": "a\u2028b\x85c\nd€\x1e"},
        {"kind": "accuracy", "stage": 2, "epoch": None},
    )
    assert (run.config, run.timing, run.done, run.environment) == (CONFIG, ({"seconds": 1.5},), None, {})


def test_equal_facts_are_equal_bytes(tmp_path):
    for name in "ab":
        with RunFolder(tmp_path / name, CONFIG) as folder:
            folder.append("loss", stage=1, terms={"z": 1 / 3, "a": 2e-9})
    first, second = ((tmp_path / name / "records.jsonl").read_bytes() for name in "ab")
    assert first == second == b'{"kind":"loss","stage":1,"terms":{"z":0.3333333333333333,"a":2e-09}}\n'


def test_rewind_forgets_what_came_after_the_checkpoint(tmp_path):
    with RunFolder(tmp_path / "run", CONFIG) as folder:
        assert folder.length() == 0
        folder.append("loss", epoch=0)
        length = folder.length()
        folder.append("loss", epoch=1)
        folder.append("loss", epoch=2)
        assert folder.length() == 3 * length
        folder.rewind(length)
        folder.append("loss", epoch=1)
    assert [r["epoch"] for r in read_run(tmp_path / "run").records] == [0, 1]


def test_rewind_to_the_beginning_works_before_anything_is_recorded(tmp_path):
    with RunFolder(tmp_path / "run", CONFIG) as folder:
        folder.rewind(0)
    assert read_run(tmp_path / "run").records == ()


def test_rewind_beyond_the_end_is_damage_and_not_a_row_of_zeros(tmp_path):
    with RunFolder(tmp_path / "run", CONFIG) as folder:
        folder.append("loss", epoch=0)
        with pytest.raises(CosdaError, match=r"records\.jsonl is shorter than its checkpoint says"):
            folder.rewind(folder.length() + 1)


def test_half_a_line_that_a_kill_left_is_ignored_and_then_overwritten(tmp_path):
    with RunFolder(tmp_path / "run", CONFIG) as folder:
        folder.append("loss", epoch=0)
        folder.append_timing(epoch=0)
        length = folder.length()
        for name in ("records.jsonl", "timing.jsonl"):
            with (folder.path / name).open("ab") as file:
                file.write('{"kind":"loss","name":"€'.encode()[:-1])  # cut within a character
        assert [r["epoch"] for r in read_run(folder.path).records] == [0]
        folder.rewind(length)
        folder.append("loss", epoch=1)
        folder.append_timing(epoch=1)
    run = read_run(tmp_path / "run")
    assert [r["epoch"] for r in run.records] == [0, 1]
    assert [r["epoch"] for r in run.timing] == [0, 1]


def test_finish_removes_the_checkpoint_and_the_lock_and_says_so(tmp_path):
    with RunFolder(tmp_path / "run", CONFIG) as folder:
        (folder.path / "checkpoint").mkdir()
        (folder.path / "checkpoint" / "last.safetensors").write_bytes(b"x")
        assert not folder.finished
        folder.finish(stages=2)
        assert folder.finished
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["config.json", "done.json", "run"]
    assert read_run(tmp_path / "run").done == {"stages": 2}


def test_the_config_of_a_folder_is_written_once(tmp_path):
    for seed in (1, 2):
        with RunFolder(tmp_path / "run", CONFIG | {"seed": seed}):
            pass
    assert read_run(tmp_path / "run").seed == 1


def test_write_json_replaces_the_whole_file_or_nothing(tmp_path):
    path = tmp_path / "deep" / "x.json"
    write_json(path, {"a": "€"})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": "€"}


def test_digest_depends_on_values_and_not_on_their_order():
    assert digest({"a": 1, "b": (2, 3)}) == digest({"b": [2, 3], "a": 1})
    assert digest({"a": 1}) != digest({"a": 1.5})
    assert len(digest(None)) == 10


# --- One writer -------------------------------------------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from cosda.records.folder import RunFolder
with RunFolder(Path(sys.argv[1]), {"kind": "adapt"}) as folder:
    folder.append("loss", epoch=0)
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the run folder until it is killed."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_until_the_first_is_dead(tmp_path, holder):
    with pytest.raises(CosdaError, match="another process is writing"), RunFolder(tmp_path / "run", CONFIG):
        pass
    with RunFolder(tmp_path / "other", CONFIG):  # another folder is free
        pass
    assert read_run(tmp_path / "run").config == {"kind": "adapt"}  # reading is always possible
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with RunFolder(tmp_path / "run", CONFIG) as folder:
        folder.append("loss", epoch=1)
    assert [r["epoch"] for r in read_run(tmp_path / "run").records] == [0, 1]


def test_waiting_goes_on_when_the_first_is_dead(tmp_path, holder):
    waiting = subprocess.Popen(
        [sys.executable, "-c", HOLD.replace('"adapt"}', '"adapt"}, wait=-1'), str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with waiting:
        assert not select.select([waiting.stdout], [], [], 0.4)[0]
        assert waiting.poll() is None
        os.kill(holder.pid, signal.SIGKILL)
        assert waiting.stdout.readline() == "held\n"
        waiting.kill()


def test_an_error_inside_releases_the_folder(tmp_path):
    with pytest.raises(RuntimeError, match="boom"), RunFolder(tmp_path / "run", CONFIG):
        raise RuntimeError("boom")
    with RunFolder(tmp_path / "run", CONFIG):
        pass


# --- Numbers ----------------------------------------------------------------------------------------------------------


def test_the_matrix_is_stage_by_domain():
    matrix = a_run(full_records()).matrix()
    assert matrix == [pytest.approx(list(stage)) for stage in zip(*R, strict=True)]


def test_a_missing_cell_leaves_no_matrix_and_an_empty_summary():
    run = a_run(full_records()[:-1])
    assert run.matrix() is None
    assert run.summary() == {"domains": CONFIG["domains"], "select": "last", "accuracy": None}


def test_epochs_and_other_splits_do_not_enter_the_matrix():
    noise = [accuracy(2, "three", 0.01, epoch=4), accuracy(2, "three", 0.01, split="holdout")]
    assert a_run([*full_records(), *noise]).matrix()[2][2] == pytest.approx(0.65)
    assert a_run([*full_records()[:-1], *noise]).matrix() is None


def test_the_summary_by_hand():
    summary = a_run(full_records()).summary()
    assert summary.pop("accuracy")[0] == pytest.approx([0.9, 0.4, 0.3])
    assert summary == {
        "domains": ["one", "two", "three"],
        "select": "last",
        "average": pytest.approx((0.6 + 0.75 + 0.65) / 3),
        "adaptation": pytest.approx((0.7 + 0.65) / 2),
        "source_drop": pytest.approx(0.3),
        "harmonic": pytest.approx(2 * 0.675 * 0.6 / (0.675 + 0.6)),
        "bwt": pytest.approx((-0.3 + 0.05) / 2),
        "bwt_targets": pytest.approx(0.05),
        "forgetting": pytest.approx(0.15),
        "forward_transfer": pytest.approx(0.05),
    }


def test_the_headline_decides_which_accuracy():
    record = accuracy(0, "one", 0.9)
    assert a_run([]).accuracy(record) == pytest.approx(0.9)
    assert a_run([], headline="per-class").accuracy(record) == pytest.approx(0.5)  # 0 of 10 and 90 of 90


def routing(stage, domain, known, sent, **more):
    facts = {"known": known, "sent": sent, "mixed": 0, "unknown": 0, "crossfitted": False, **more}
    return {"kind": "routing", "stage": stage, "domain": domain, **facts}


def test_where_a_bank_sent_the_images_of_each_domain():
    first = [routing(1, "one", ["one", "two"], [9, 1]), routing(1, "three", ["one", "two"], [5, 5], unknown=9)]
    last = [routing(2, "one", ["one", "two", "three"], [7, 2, 1], mixed=4, crossfitted=True)]
    run = a_run(first + last)
    sent = run.routing(1)["three"]
    assert sent == RoutedImages(10, {"one": 0.5, "two": 0.5}, None, 0.0, 0.9, False)  # there was no expert for it yet
    assert run.routing() == run.routing(2)
    assert run.routing()["one"] == RoutedImages(10, {"one": 0.7, "two": 0.2, "three": 0.1}, "one", 0.4, 0.0, True)
    assert a_run(full_records()).routing() == {}


def test_a_base_that_knows_the_source_by_another_name_is_its_own_expert():
    known = ["source", "two"]
    run = a_run(
        [routing(1, "one", known, [3, 1]), routing(1, "two", known, [0, 4]), routing(1, "three", known, [2, 2])]
    )
    assert [sent.own for sent in run.routing().values()] == ["source", "two", None]


def test_a_base_and_its_experts_have_accuracies_of_their_own():
    expert = accuracy(1, "two", 0.72) | {"kind": "expert"}
    run = a_run([*full_records(), routing(1, "one", ["one", "two"], [1, 0]), expert])
    assert [run.base_accuracy(name) for name in run.domains] == pytest.approx([row[0] for row in R])
    assert run.expert_accuracy("one") == pytest.approx(R[0][0])  # the base is the expert of the source
    assert run.expert_accuracy("two") == pytest.approx(0.72)
    assert run.expert_accuracy("three") is None


def test_a_run_that_began_with_a_bank_did_not_measure_its_base():
    run = a_run([*full_records(), routing(0, "one", ["one", "zero"], [1, 0])])
    assert run.base_accuracy("two") is None
    assert run.expert_accuracy("one") is None


def test_records_are_chosen_by_kind_and_fields():
    run = a_run([{"kind": "loss", "stage": 1}, {"kind": "loss", "stage": 2}, {"kind": "accuracy", "stage": 1}])
    assert list(run.of("loss", stage=1)) == [{"kind": "loss", "stage": 1}]
    assert len(list(run.of("loss"))) == 2
    assert list(run.of("loss", epoch=3)) == []


# --- Reading ----------------------------------------------------------------------------------------------------------


def test_find_runs_by_name_once_each_and_without_source_models(tmp_path):
    for name in ("b/two", "a/three", "one"):
        write_run(tmp_path / name)
    write_run(tmp_path / "sources" / "x", kind="source")
    runs = find_runs([tmp_path, tmp_path / "one", tmp_path / "a" / ".." / "a" / "three"])
    assert [run.path.name for run in runs] == ["one", "three", "two"]


def test_find_runs_takes_one_folder_and_text(tmp_path):
    write_run(tmp_path / "one")
    for given in (tmp_path, str(tmp_path), [str(tmp_path)]):
        assert [run.path.name for run in find_runs(given)] == ["one"]


def test_find_runs_says_what_is_missing(tmp_path):
    with pytest.raises(CosdaError, match="does not exist"):
        find_runs([tmp_path / "nowhere"])
    with pytest.raises(CosdaError, match="no runs found below"):
        find_runs([tmp_path])
    with pytest.raises(CosdaError, match=r"has no config\.json"):
        read_run(tmp_path)


DAMAGES = {
    "config.json": "{",
    "done.json": "",
    "environment.json": "[1]",
    "records.jsonl": '{"kind":"loss"}\nnonsense\n{"kind":"loss"}\n',
    "timing.jsonl": "3\n",
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_with_file_and_line(tmp_path, name):
    path = write_run(tmp_path / "run")
    (path / name).write_text(DAMAGES[name], encoding="utf-8")
    with pytest.raises(CosdaError, match="is damaged") as caught:
        read_run(path)
    assert str(path / name) in str(caught.value)
    assert ("line 2," in str(caught.value)) == (name == "records.jsonl")


def test_text_that_is_not_utf8_is_damage(tmp_path):
    path = write_run(tmp_path / "run")
    (path / "records.jsonl").write_bytes(b'{"kind":"\xff"}\n')
    with pytest.raises(CosdaError, match="line 1, is damaged"):
        read_run(path)


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_does_not_hide_the_others(tmp_path, name):
    write_run(tmp_path / "whole")
    (write_run(tmp_path / "broken") / name).write_text(DAMAGES[name], encoding="utf-8")
    broken, whole = find_runs([tmp_path])
    assert (broken.config, whole.damage) == ({}, "")
    grouped = group_runs([broken, whole])
    assert [group.name for section in grouped.sections for group in section.groups] == ["cosda"]
    (problem,) = grouped.left_out
    assert problem.run is broken
    assert problem.reason.startswith(name)
    assert str(tmp_path) not in problem.reason  # reports name no places of a machine


def test_a_damaged_source_model_is_nobodys_run(tmp_path):
    write_run(tmp_path / "whole")
    path = write_run(tmp_path / "sources" / "x", kind="source")
    (path / "records.jsonl").write_text("nonsense\n", encoding="utf-8")
    assert [run.path.name for run in find_runs([tmp_path])] == ["whole"]


@pytest.mark.parametrize("format", ["md", "csv", "html"])
def test_a_report_on_nothing_but_damage_can_be_written(tmp_path, format):
    (write_run(tmp_path / "broken") / "config.json").write_text("{", encoding="utf-8")
    text = render_report(find_runs([tmp_path]), format)
    assert "config.json is damaged" in text


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    path = tmp_path / "run"
    with RunFolder(path, {"kind": "adapt"}):
        pass
    (path / "models" / ".stage-0.123.tmp").mkdir(parents=True)
    (path / "models" / ".stage-0.123.tmp" / "model.json").write_text("half")
    (path / "config.json.123.tmp").write_text("half")
    with RunFolder(path, {"kind": "adapt"}):
        assert sorted(p.name for p in path.rglob("*")) == ["config.json", "models"]
