from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cosda.data.doctor import examine

OFFICE31 = Path(__file__).resolve().parents[3] / "shared" / "data" / "office31"


def test_healthy_data(tmp_path, tree):
    tree(tmp_path, "a/cat", "a/dog", "b/cat", "b/dog")
    seen = []
    findings = examine(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert findings.ok
    assert findings.problems == findings.warnings == findings.unreadable == findings.duplicates == []
    assert (findings.benchmark, findings.protocol) == (tmp_path.name, "transductive")
    assert [(d.name, d.images, d.labelled, d.train, d.test, d.classes) for d in findings.domains] == [
        ("a", 4, 4, 4, 4, 2),
        ("b", 4, 4, 4, 4, 2),
    ]
    assert seen[-1] == (8, 8)
    assert "No problems." in findings.as_text()
    assert json.loads(json.dumps(findings.as_json()))["ok"] is True


def test_unreadable_files_are_problems(tmp_path, tree):
    tree(tmp_path, "a/cat", "a/dog", "b/cat", "b/dog")
    (tmp_path / "a/cat/0.png").write_bytes(b"")
    findings = examine(tmp_path)
    assert findings.unreadable == [("a: cat/0.png", "the file is empty")]
    assert findings.problems == ["a: 1 files are missing or cannot be read (listed as unreadable)"]
    assert not findings.ok
    text = findings.as_text()
    assert "a: cat/0.png: the file is empty" in text
    assert text.endswith("Problems: 1.")


def test_duplicates_are_warnings(tmp_path, tree, draw):
    tree(tmp_path, "a/cat", "a/dog", "b/cat", "b/dog")
    draw(tmp_path / "a/cat/copy.png", seed=1)  # of a/cat/1.png
    draw(tmp_path / "b/dog/copy.png", seed=0)  # of a/cat/0.png, with another label
    findings = examine(tmp_path)
    assert findings.ok
    assert findings.duplicates == [
        ["a: cat/0.png", "b: dog/copy.png"],
        ["a: cat/1.png", "a: cat/copy.png"],
    ]
    assert sorted(findings.warnings) == [
        "1 images have copies with another label",
        "1 images occur in several domains (a, b)",
        "a: 1 images are exact copies of another one",
    ]


def test_missing_classes_are_warnings_and_empty_ones_problems(tmp_path, tree):
    tree(tmp_path, "a/cat", "a/dog", "a/eel", "b/cat", "b/eel")
    (tmp_path / "b/eel/0.png").unlink()
    (tmp_path / "b/eel/1.png").unlink()
    findings = examine(tmp_path)
    assert findings.problems == ["b: no images in the classes eel"]
    assert findings.warnings == ["b: lacks the classes dog"]
    assert findings.domains[1].classes == 1


def test_mismatched_class_lists_are_a_problem_and_the_rest_is_still_told(tmp_path, tree):
    tree(tmp_path, "a/cat", "a/dog", "b/cat", "b/hound")
    findings = examine(tmp_path)
    assert len(findings.problems) == 1
    assert "mismatched class lists: b has hound" in findings.problems[0]
    assert [domain.images for domain in findings.domains] == [4, 4]
    assert "no common classes" in findings.as_text()


def test_a_wrong_split(tmp_path, tree):
    tree(tmp_path, "site/cat", "site/dog")
    (tmp_path / "site_train.txt").write_text("site/cat/0.png 0\nsite/dog/0.png 1\n")
    (tmp_path / "site_test.txt").write_text("site/cat/0.png 0\nsite/dog/1.png 1\nsite/dog/9.png 1\n")
    findings = examine(tmp_path)
    assert findings.protocol == "inductive"
    assert findings.problems == [
        "site: 1 images are in train and in test (site: site/cat/0.png …)",
        "site: 1 files are missing or cannot be read (listed as unreadable)",
    ]
    assert findings.unreadable == [("site: site/dog/9.png", "the file is missing")]


def test_an_empty_split_and_copies_across_the_split(tmp_path):
    np.savez(tmp_path / "x.npz", a_features=np.ones((2, 3)), a_labels=[0, 0], a_train=[0, 1], a_test=np.array([], int))
    assert "a: the test split is empty" in examine(tmp_path / "x.npz").problems
    np.savez(tmp_path / "y.npz", features=np.ones((2, 3)), labels=[0, 2], train=[0], test=[1])
    findings = examine(tmp_path / "y.npz")
    assert findings.ok
    assert "y: 1 images have copies in both train and test" in findings.warnings
    assert "y: lacks the classes 1" in findings.warnings


@pytest.mark.parametrize("what", ["nowhere", "empty", "text.txt", "broken.npz"])
def test_what_cannot_be_loaded_is_a_problem_and_no_crash(tmp_path, what):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("hello\n")
    (tmp_path / "broken.npz").write_bytes(b"broken")
    findings = examine(tmp_path / what)
    assert len(findings.problems) == 1
    assert not findings.ok
    assert what in findings.as_text()
    json.dumps(findings.as_json())


def test_one_domain_can_be_examined_too(tmp_path, tree, draw):
    tree(tmp_path / "site", "cat", "dog")
    findings = examine(tmp_path / "site")
    assert findings.ok
    assert (findings.benchmark, findings.classes) == ("one domain", ["cat", "dog"])
    draw(tmp_path / "loose/a.png")
    findings = examine(tmp_path / "loose")
    assert findings.ok
    assert findings.domains[0].labelled == 0
    (tmp_path / "list.txt").write_text("loose/a.png 0\n")
    assert examine(tmp_path / "list.txt").ok


def test_files_that_are_no_images_are_told(tmp_path, tree):
    tree(tmp_path, "a/cat", "a/dog", "b/cat", "b/dog")
    for name in ("a/cat/1.heic", "a/dog/2.heic", "a/cat/.DS_Store", "a/dog/Thumbs.db", "b/labels.json"):
        (tmp_path / name).write_bytes(b"?")
    findings = examine(tmp_path)
    assert findings.ok
    assert findings.warnings == ["a: ignored files: 2 .heic", "b: ignored files: 1 .json"]
    assert [domain.ignored for domain in findings.domains] == [{".heic": 2}, {".json": 1}]
    assert json.loads(json.dumps(findings.as_json()))["domains"][0]["ignored"] == {".heic": 2}
    assert "a: ignored files: 2 .heic" in findings.as_text()


def test_a_csv_file_and_a_path_as_text(tmp_path, tree):
    tree(tmp_path, "all/cat")
    (tmp_path / "list.csv").write_text("path,label\nall/cat/0.png,cat\nall/cat/1.png,dog\n")
    findings = examine(str(tmp_path / "list.csv"))
    assert findings.ok
    assert (findings.benchmark, findings.classes) == ("list", ["cat", "dog"])
    (tmp_path / "list.csv").write_text("path,label\nall/cat/0.png,cat\nall/cat/9.png,dog\n")
    assert examine(tmp_path / "list.csv").unreadable == [("list: all/cat/9.png", "the file is missing")]


@pytest.mark.skipif(not OFFICE31.is_dir(), reason="the images of Office-31 are not here")
def test_amazon_holds_exact_duplicates():
    findings = examine(OFFICE31)
    assert findings.ok
    assert findings.benchmark == "office31"
    assert findings.warnings == ["amazon: 71 images are exact copies of another one"]
