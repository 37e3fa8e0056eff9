"""Which images change class between two models: on the terminal, as JSON, as CSV and as a page."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import cosda as package
from cosda.models.artifact import load


@pytest.fixture(scope="module")
def other(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as it takes what it took for a for b, and the other way round."""
    changed = load(model)
    with torch.no_grad():
        for tensor in changed.network.classifier.parameters():
            tensor[[0, 1]] = tensor[[1, 0]]
    return changed.save(tmp_path_factory.mktemp("other") / "model")


def test_every_change_is_told_with_both_probabilities(cosda, model: Path, other: Path, photos: Path) -> None:
    before, after = (package.predict(folder, photos / "two") for folder in (model, other))
    changes = {
        one.image: (one.class_name, one.probability, two.class_name, two.probability)
        for one, two in zip(before, after, strict=True)
        if one.class_name != two.class_name
    }
    assert changes
    found = package.diff(model, other, photos / "two")
    assert {
        one.image: (one.before, one.before_probability, one.after, one.after_probability) for one in found.changed
    } == changes
    assert set(found.pairs) <= {("a", "b"), ("b", "a")}
    assert sum(found.pairs.values()) == len(changes)
    assert list(found.pairs.values()) == sorted(found.pairs.values(), reverse=True)
    confidences = [one.before_probability * one.after_probability for one in found.changed]
    assert confidences == sorted(confidences, reverse=True)
    assert (found.a, found.b, found.images, found.share) == (str(model), str(other), 30, len(changes) / 30)
    assert json.loads(cosda("diff", model, other, photos / "two", "-q", "--json").out) == found.as_json()


def test_the_terminal_shows_as_many_as_are_wanted(cosda, model: Path, other: Path, photos: Path) -> None:
    found = package.diff(model, other, photos / "two")
    out = cosda("diff", model, other, photos / "two", "-q", "--most", 1).out
    assert out.startswith(f"{len(found.changed)} of 30 images change class, {found.share:.1%}\n")
    assert found.changed[0].image in out
    assert not any(one.image in out for one in found.changed[1:])
    assert f"and {len(found.changed) - 1} more images" in out
    assert len(cosda("diff", model, other, photos / "two", "-q", "--most", 0).out.splitlines()) == 1


def test_equal_models_change_nothing(cosda, model: Path, photos: Path) -> None:
    assert cosda("diff", model, model, photos / "two", "-q").out == "0 of 30 images change class, 0.0%\n"


def test_labels_are_not_read(model: Path, other: Path, photos: Path, tmp_path: Path) -> None:
    for folder in (tmp_path / "flat", tmp_path / "wrong" / "zebra"):
        folder.mkdir(parents=True)
        for path in (photos / "two").rglob("*.png"):
            shutil.copy(path, folder)
    flat, wrong = (package.diff(model, other, tmp_path / name) for name in ("flat", "wrong"))
    true = package.diff(model, other, photos / "two")
    names = [[Path(one.image).name for one in found.changed] for found in (true, flat, wrong)]
    assert names[0] == names[1] == names[2]


def test_csv_has_all_and_names_what_cannot_be_read(cosda, model: Path, other: Path, photos: Path, tmp_path) -> None:
    shutil.copytree(photos / "three", tmp_path / "three")
    (tmp_path / "three" / "05.png").write_bytes(b"no image")
    file = tmp_path / "changes.csv"
    answer = cosda("diff", model, other, tmp_path / "three", "-q", "--most", 0, "--output", file)
    assert "; 1 could not be read" in answer.out
    assert "05.png" in answer.err
    found = package.diff(model, other, tmp_path / "three")
    assert (found.images, list(found.skipped)) == (29, ["05.png"])
    with file.open(newline="") as opened:
        *rows, last = csv.DictReader(opened)
    assert [row["image"] for row in rows] == [one.image for one in found.changed]
    assert [row["after_probability"] for row in rows] == [f"{one.after_probability:.6f}" for one in found.changed]
    assert (last["image"], last["before"], last["skipped"]) == ("05.png", "", found.skipped["05.png"])


def test_the_page_has_a_picture_of_each_image_that_it_shows(cosda, model: Path, other: Path, photos, tmp_path) -> None:
    page = tmp_path / "pages" / "changes.html"
    assert cosda("diff", model, other, photos / "two", "-q", "-o", page, "--most", 2).code == 0
    assert page.read_text().count("data:image/jpeg;base64,") == 2
    assert cosda("diff", model, other, photos / "two", "-q", "-o", page).code == 0
    changed = len(package.diff(model, other, photos / "two").changed)
    assert page.read_text().count("data:image/jpeg;base64,") == changed


def test_only_models_of_the_same_classes(cosda, model: Path, photos: Path, tmp_path: Path) -> None:
    renamed = replace(load(model), classes=("a", "b", "dog")).save(tmp_path / "renamed")
    answer = cosda("diff", model, renamed, photos / "two", "-q")
    assert (answer.code, answer.out) == (2, "")
    assert "only A has c; only B has dog" in answer.err
    turned = load(model)
    with torch.no_grad():
        for tensor in turned.network.classifier.parameters():
            tensor[[0, 1]] = tensor[[1, 0]]
    turned = replace(turned, classes=("b", "a", "c"))
    assert package.diff(model, turned, photos / "two").changed == (), "classes are compared by name"


def test_a_file_of_another_kind_is_refused_before_any_work(cosda, model: Path, tmp_path: Path) -> None:
    answer = cosda("diff", model, model, tmp_path / "nowhere", "-o", tmp_path / "x.txt")
    assert answer.code == 2
    assert "FILE.csv or FILE.html" in answer.err


def test_a_bank_may_be_told_the_domain(cosda, model: Path, photos: Path, tmp_path: Path) -> None:
    bank = package.adapt(model, photos / "two", "aad", carry="bank", epochs=1, batch_size=8).model
    folder = bank.save(tmp_path / "bank")
    assert "0 of 30" in cosda("diff", folder, folder, photos / "two", "-q", "--domain", "two").out
    wrong = cosda("diff", folder, folder, photos / "two", "-q", "--domain", "tow")
    assert (wrong.code, "Did you mean 'two'?" in wrong.err) == (2, True)
