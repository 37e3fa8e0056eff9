"""Bad data as the user of a command meets them: exit code 2, one line, and nothing written elsewhere."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from cosda.data.entries import default_cache

QUICK = ("--epochs", "1", "--set", "source.epochs=1", "--set", "network.bottleneck=8")


def vectors(path: Path, *names: str, **more: object) -> Path:
    rng = np.random.default_rng(0)
    arrays: dict[str, object] = {}
    for name in names:
        labels = np.arange(12) % 3
        arrays[f"{name}_features"] = (rng.normal(size=(12, 5)) + np.eye(5)[labels]).astype(np.float32)
        arrays[f"{name}_labels"] = labels
    np.savez(path, **arrays, **more)
    return path


def test_names_of_domains_write_nothing_outside_of_the_run_folder(cosda, tmp_path):
    data = vectors(tmp_path / "x.npz", "../../ESCAPED", "b/c")
    out = tmp_path / "deep" / "deeper" / "runs"
    done = cosda("run", data, "--out", out, *QUICK)
    assert done.code == 0, done.err
    assert sorted(os.listdir(tmp_path)) == ["deep", "x.npz"]
    assert os.listdir(tmp_path / "deep") == ["deeper"]
    assert os.listdir(tmp_path / "deep/deeper") == ["runs"]
    assert all("ESCAPED" not in name or "~" in name for name in os.listdir(out / "sources"))
    done = cosda("source", data, "--domain", "../../ESCAPED", "--model", tmp_path / "model", "--out", out, *QUICK[2:])
    assert done.code == 0, done.err
    assert sorted(os.listdir(tmp_path)) == ["deep", "model", "x.npz"]


@pytest.mark.parametrize("name", ["x" * 240, "a\udcff\x1b[31mb"])
def test_a_benchmark_of_any_name_can_be_run(cosda, tmp_path, name):
    data = vectors(tmp_path / f"{name}.npz", "a", "b")
    done = cosda("run", data, "--out", tmp_path / "runs", *QUICK)
    assert done.code == 0, done.err
    (done.out + done.err).encode()
    done = cosda("report", tmp_path / "runs", "-o", tmp_path / "report.html")
    assert done.code == 0, done.err


def test_places_to_write_to_of_any_name(cosda, tmp_path):
    data, place = vectors(tmp_path / "x.npz", "a", "b"), tmp_path / "\udcff\x1b[31m"
    for words in (("source", data, "--domain", "a", "--model", place / "model"), ("run", data)):
        done = cosda(*words, "--out", place / "runs", *QUICK[2:], "--set", "adapt.epochs=1")
        assert done.code == 0, done.err
    assert cosda("predict", place / "model", f"{data}#b", "--output", place / "found.csv").code == 0


BAD = {
    "widths": {"c_features": np.ones((12, 6), np.float32), "c_labels": np.arange(12) % 3},
    "misspelt": {"c_featurse": np.ones((12, 5), np.float32)},
    "too many classes": {"c_features": np.ones((1, 5), np.float32), "c_labels": np.array([2**62])},
}


@pytest.mark.parametrize("fault", BAD)
@pytest.mark.parametrize("command", ["doctor", "run", "source", "bench"])
def test_bad_arrays_stop_every_command_before_any_work(cosda, tmp_path, fault, command):
    data = vectors(tmp_path / "x.npz", "a", "b", **BAD[fault])
    more = {
        "run": ("--out", tmp_path / "runs"),
        "source": ("--domain", "a", "--model", tmp_path / "model", "--out", tmp_path / "runs"),
        "bench": ("--out", tmp_path / "runs"),
    }
    done = cosda(command, data, *more.get(command, ()))
    assert done.code == 2
    assert "Traceback" not in done.err
    assert os.listdir(tmp_path) == ["x.npz"]


def test_a_model_takes_only_what_it_was_trained_on(cosda, tmp_path, model, photos):
    data = vectors(tmp_path / "x.npz", "a")
    for words in (
        ("predict", model, data),
        ("adapt", model, data, "--to", tmp_path / "new", "--out", tmp_path / "runs"),
    ):
        done = cosda(*words)
        assert (done.code, done.err) == (2, "cosda: the model takes images, but a has feature vectors of width 5.\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("missing", ["size", "mean", "std"])
def test_a_model_that_does_not_say_what_it_saw_is_not_guessed(cosda, tmp_path, model, photos, missing):
    shutil.copytree(model, tmp_path / "model")
    description = json.loads((tmp_path / "model" / "model.json").read_text())
    del description["preprocessing"][missing]
    (tmp_path / "model" / "model.json").write_text(json.dumps(description))
    done = cosda("predict", tmp_path / "model", photos / "three")
    assert done.code == 2
    assert f"preprocessing lacks {missing}" in done.err


def test_predictions_hold_no_formulas(cosda, tmp_path, model, photos):
    (tmp_path / "new").mkdir()
    shutil.copy(photos / "three" / "00.png", tmp_path / "new" / "=cmd|' calc'!A0.png")
    done = cosda("predict", model, tmp_path / "new")
    assert done.code == 0, done.err
    assert done.out.splitlines()[1].startswith("'=cmd|")


def test_links_that_lead_out_need_a_word(cosda, tmp_path, model, photos):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "x.png").symlink_to(photos / "three" / "00.png")
    for words in (("predict", model, tmp_path / "new"), ("doctor", tmp_path / "new")):
        done = cosda(*words)
        assert done.code == 2
        assert "--follow-links" in done.out + done.err
        assert cosda(*words, "--follow-links").code == 0


def test_file_names_that_are_no_text_are_printed(cosda, tmp_path, model, photos):
    (tmp_path / "new").mkdir()
    shutil.copy(photos / "three" / "00.png", os.fsencode(tmp_path) + b"/new/\xff.png")
    for format in ("csv", "json"):
        done = cosda("predict", model, tmp_path / "new", "--format", format)
        assert done.code == 0, done.err
        assert "xff.png" in done.out


def test_a_cache_is_checked_and_pruned(cosda, tmp_path, model, photos, monkeypatch):
    monkeypatch.setenv("COSDA_CACHE", str(tmp_path / "cache"))
    assert cosda("predict", model, photos / "three").code == 0
    done = cosda("cache", "check")
    assert (done.code, done.out.count("\n")) == (0, 1)
    assert "1 entries looked at" in done.out
    (pixels,) = default_cache().glob("packs/*/pixels.u8")
    os.truncate(pixels, 7)
    done = cosda("cache", "check")
    assert done.code == 2
    assert "pixels.u8 has 7 bytes and not" in done.out
    assert json.loads(cosda("cache", "check", "--json").out)[0]["fault"]
    assert "would be removed" in cosda("cache", "prune", "--dry-run").out
    assert pixels.exists()
    assert cosda("cache", "prune").code == 0
    assert not pixels.exists()
    assert cosda("cache", "check").code == 0
    assert cosda("predict", model, photos / "three").code == 0
    assert cosda("cache", "prune", "--unused", "0").code == 0
    assert list(default_cache().glob("packs/*")) == []
    assert "Did you mean 'prune'" in cosda("cache", "prone").err
    assert cosda("cache", "check", "--dry-run").code == 2
