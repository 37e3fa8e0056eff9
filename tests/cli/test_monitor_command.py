"""cosda monitor as a scheduler and its owner meet it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cosda.api import monitor, profile
from cosda.errors import CosdaError
from cosda.models.artifact import load
from tiny import tiny_domain


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """New images of the known domain and of another one."""
    root = tmp_path_factory.mktemp("sites")
    parts = (("known", 0, 0, 120), ("same", 0, 120, 100), ("other", 6, 0, 100), ("few", 0, 120, 12))
    for name, seed, first, count in parts:
        (root / name).mkdir()
        items = tiny_domain(name, 220, seed=seed).items
        for number in range(first, first + count):
            Image.fromarray(np.asarray(items)[number]).save(root / name / f"{number:03}.png")
    return root


@pytest.fixture(scope="module")
def known(model: Path, sites: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with a profile of the known images."""
    return profile(model, sites / "known").save(tmp_path_factory.mktemp("known") / "model")


def test_one_line_for_each_folder_and_a_sentence(cosda, known: Path, sites: Path) -> None:
    answer = cosda("monitor", known, sites / "same", sites / "other", "-q")
    assert answer.code == 4, answer.err
    lines = answer.out.splitlines()
    assert f"{sites / 'same'}: adapt now? no: they look like one, which the model was trained on" in lines
    assert any(line.startswith(f"{sites / 'other'}: adapt now? yes: they differ from one (") for line in lines)
    assert [line.split()[-1] for line in lines if line.strip().startswith(str(sites)) and "adapt now" not in line] == [
        "no",
        "yes",
    ]


def test_the_exit_code_says_what_a_scheduler_needs_to_know(cosda, known: Path, sites: Path) -> None:
    def code(*names: str) -> int:
        return cosda("monitor", known, *(sites / name for name in names), "-q").code

    assert code("same") == 0
    assert code("few") == 5
    assert code("same", "few") == 5
    assert code("few", "other", "same") == 4


def test_json_is_for_programs(cosda, known: Path, sites: Path) -> None:
    answer = cosda("monitor", known, sites / "other", sites / "few", "-q", "--json")
    first, second = json.loads(answer.out)
    assert (first["images"], first["known"], first["adapt"], first["count"]) == (str(sites / "other"), False, True, 100)
    assert first["p_value"] <= 0.05
    assert set(first["places"]) == {"early", "features", "predictions"}
    assert first["estimate"] is None or 0 <= first["estimate"]["low"] <= first["estimate"]["high"] <= 1
    assert (second["known"], second["adapt"], second["p_value"]) == (None, None, None)


def test_a_model_without_a_profile_says_what_to_do(cosda, model: Path, sites: Path, tmp_path: Path) -> None:
    bare = load(model)
    bare.network.profile = None
    answer = cosda("monitor", bare.save(tmp_path / "bare"), sites / "same", "-q")
    assert answer.code == 2
    assert "cosda profile MODEL FOLDER" in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("alpha", [0, 0.9, -1, 1e-6])
def test_an_impossible_rate_of_false_alarms_is_an_error(cosda, known: Path, sites: Path, alpha: float) -> None:
    answer = cosda("monitor", known, sites / "same", "-q", "--alpha", alpha)
    assert answer.code == 2
    assert "between 0.001 and 0.5" in answer.err


def test_a_folder_that_is_not_there_is_an_error_before_any_work(cosda, known: Path, sites: Path) -> None:
    answer = cosda("monitor", known, sites / "same", sites / "smae", "-q")
    assert answer.code == 2
    assert "smae does not exist" in answer.err
    assert answer.out == ""


def test_images_that_cannot_be_read_are_counted(cosda, known: Path, sites: Path, tmp_path: Path) -> None:
    for path in (sites / "same").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "broken.png").write_bytes(b"no image")
    answer = cosda("monitor", known, tmp_path, "-q")
    assert answer.code == 0
    assert "(1 could not be read)" in answer.out


def test_labels_are_not_read(known: Path) -> None:
    domain = tiny_domain("today", 60, seed=6)
    whole = monitor(known, domain)
    assert monitor(known, domain.without_labels()) == whole
    assert monitor(known, domain.with_labels_shuffled()) == whole
    assert whole.images == "today"


def test_a_model_of_feature_vectors_takes_no_images(known: Path) -> None:
    with pytest.raises(CosdaError):
        monitor(known, tiny_domain("today", 60, features=True))


def test_profiles_of_training_images_are_compared_in_early_layers_alone(
    cosda, model: Path, sites: Path, tmp_path: Path
) -> None:
    made = cosda("profile", model, sites / "known", "--trained-on", "--to", tmp_path / "trained", "-q")
    assert made.code == 0, made.err
    answer = cosda("monitor", tmp_path / "trained", sites / "other", "-q", "--json")
    places = json.loads(answer.out)[0]["places"]
    assert places["early"] is not None
    assert places["features"] is places["predictions"] is None
