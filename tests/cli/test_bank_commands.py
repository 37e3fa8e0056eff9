"""What a user does with a domain bank: look at it, take an expert out, show it its source, see where images go."""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from torch import nn

from cosda.api import adapt
from cosda.cli import tables
from cosda.models.artifact import load
from cosda.models.profile import DomainProfile
from cosda.models.wrap import wrap
from cosda.preprocessing import Preprocessing


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def weights(folder: Path) -> dict[str, bytes]:
    """All but the description and the card, which have the lineage."""
    return {name: value for name, value in content(folder).items() if name.endswith(".safetensors")}


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def stages(model: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The model, the bank with an expert for two, and the bank with one for three beside it."""
    folder, found = tmp_path_factory.mktemp("bank"), [model]
    for name in ("two", "three"):
        adapted = adapt(found[-1], photos / name, "aad", carry="bank", epochs=1, batch_size=8).model
        found.append(adapted.save(folder / name))
    return found


@pytest.fixture
def bank(stages: list[Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(stages[-1], tmp_path / "bank"))


@pytest.fixture
def unseen(model: Path, tmp_path: Path) -> Path:
    """The model without the profile of what it was trained on."""
    opened = load(model)
    opened.network.profile = None
    return opened.save(tmp_path / "unseen")


# --- cosda model ------------------------------------------------------------------------------------------------------


def test_model_tells_what_a_bank_holds(cosda, bank: Path) -> None:
    shown = cosda("model", bank)
    assert shown.code == 0, shown.err
    stored = json.loads(cosda("model", bank, "--json").out)
    assert [one["domain"] for one in stored["domains"]] == ["one", "two", "three"]
    assert [one["images"] for one in stored["domains"]] == [30, 30, 30]
    assert [one["bits"] for one in stored["domains"]] == [None, 4, 4]
    assert [one["method"] for one in stored["domains"]] == ["source", "aad", "aad"]
    assert [one["began"] for one in stored["domains"]][:2] == [None, "one"]
    assert [step["step"] for step in stored["lineage"]] == ["source", "adapt", "adapt"]
    assert [one["date"] for one in stored["domains"]] == [step["date"] for step in stored["lineage"]]
    base = len(content(bank)["encoder.safetensors"]) + len(content(bank)["head.safetensors"])
    assert stored["domains"][0]["bytes"] == base
    for number, one in enumerate(stored["domains"][1:], start=1):
        assert one["bytes"] == len(content(bank)[f"expert-{number}.safetensors"])
        assert one["profile_bytes"] == len(content(bank)[f"profile-{number}.safetensors"])
        assert one["share"] == one["bytes"] / base
        assert f"{one['share']:.1%}" in shown.out
    assert stored["bytes"] == sum(map(len, weights(bank).values()))
    assert "3 classes: a, b, c" in shown.out
    assert "images of 16 × 16 pixels" in shown.out
    assert "aad from one" in shown.out
    assert "2 experts" in shown.out


def test_model_fits_a_narrow_terminal(cosda, bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_console", lambda: Console(highlight=False, width=80))
    lines = cosda("model", bank).out.splitlines()
    assert max(map(len, lines)) <= 80
    date = json.loads(cosda("model", bank, "--json").out)["lineage"][0]["date"]
    assert sum(date in line for line in lines) == 6, "no date is broken: three domains, three steps"


def test_model_tells_what_is_missing(cosda, model: Path, unseen: Path, photos: Path, tmp_path: Path) -> None:
    assert "cosda profile" not in cosda("model", model).out
    assert "The base has no profile: 'cosda profile" in cosda("model", unseen).out
    adapt(unseen, photos / "two", "aad", carry="bank", epochs=0).model.save(tmp_path / "bank")
    assert "of BatchNorm statistics alone: 'cosda profile" in cosda("model", tmp_path / "bank").out


def test_model_shows_a_model_that_was_wrapped(cosda, tmp_path: Path) -> None:
    own = nn.Sequential(nn.Flatten(), nn.Linear(768, 3))
    wrap(own, ("a", "b", "c"), preprocessing=Preprocessing(size=16)).save(tmp_path / "mine")
    answer = cosda("model", tmp_path / "mine")
    assert answer.code == 0, answer.err
    assert "network: your own, 768 features" in answer.out
    assert "wrapped Sequential" in answer.out


def test_what_the_last_stage_added_is_taken_out_without_a_trace(cosda, bank: Path, stages: list[Path]) -> None:
    answer = cosda("model", bank, "--drop", "three")
    assert answer.code == 0, answer.err
    assert "the expert of 'three' is taken out" in answer.out
    assert weights(bank) == weights(stages[1])
    left = json.loads(cosda("model", bank, "--json").out)
    assert [one["domain"] for one in left["domains"]] == ["one", "two"]
    last = left["lineage"][-1]
    assert (last["step"], last["domain"], set(last)) == ("drop", "three", {"step", "domain", "date"})


def test_without_its_last_expert_a_bank_is_the_plain_model(cosda, bank: Path, model: Path, photos: Path) -> None:
    cosda("model", bank, "--drop", "two")
    assert weights(bank).keys() >= {"expert-1.safetensors"}
    left = json.loads(cosda("model", bank, "--drop", "three", "--json").out)
    assert [one["domain"] for one in left["domains"]] == ["one"]
    assert weights(bank) == weights(model)
    assert "experts" not in json.loads((bank / "model.json").read_text())
    words = [photos / "three", "--probabilities", "-q"]
    assert cosda("predict", bank, *words).out == cosda("predict", model, *words).out


def test_a_profile_that_the_bank_made_goes_with_its_last_expert(cosda, unseen: Path, photos: Path, tmp_path) -> None:
    bank = adapt(unseen, photos / "two", "aad", carry="bank", epochs=0).model.save(tmp_path / "bank")
    assert "profile-0.safetensors" in content(bank)
    assert cosda("model", bank, "--drop", "two").code == 0
    assert weights(bank) == weights(unseen)


def test_the_experts_that_are_left_answer_as_before(cosda, bank: Path, photos: Path) -> None:
    words = [photos / "three", "--domain", "three", "--probabilities", "-q"]
    before = cosda("predict", bank, *words).out
    assert cosda("model", bank, "--drop", "two").code == 0
    assert cosda("predict", bank, *words).out == before
    assert len(rows(before)) == 30


def test_elsewhere_leaves_the_model_alone(cosda, bank: Path, stages: list[Path], tmp_path: Path) -> None:
    before = content(bank)
    assert cosda("model", bank, "--drop", "three", "--to", tmp_path / "left").code == 0
    assert content(bank) == before
    assert weights(tmp_path / "left") == weights(stages[1])
    refused = cosda("model", bank, "--drop", "two", "--to", tmp_path / "left")
    assert (refused.code, "--overwrite" in refused.err) == (2, True)
    assert weights(tmp_path / "left") == weights(stages[1])
    assert cosda("model", bank, "--drop", "two", "--to", tmp_path / "left", "--overwrite").code == 0
    assert weights(tmp_path / "left") != weights(stages[1])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--drop", "thre"], "Did you mean 'three'? Known: one, two, three."),
        (["--drop", "one"], "'one' is what the model was trained on"),
        (["--to", "x"], "--drop DOMAIN"),
    ],
)
def test_what_cannot_be_taken_out_is_explained(cosda, bank: Path, words: list[str], said: str) -> None:
    before = content(bank)
    answer = cosda("model", bank, *words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert content(bank) == before


def test_a_plain_model_has_nothing_to_take_out(cosda, model: Path, tmp_path: Path) -> None:
    answer = cosda("model", model, "--drop", "two", "--to", tmp_path / "x")
    assert answer.code == 2
    assert "no domain bank" in answer.err
    assert not (tmp_path / "x").exists()


def test_a_folder_with_other_files_is_not_replaced(cosda, bank: Path) -> None:
    (bank / "thesis.txt").write_text("years of work")
    before = content(bank)
    answer = cosda("model", bank, "--drop", "two")
    assert (answer.code, "thesis.txt" in answer.err) == (2, True)
    assert content(bank) == before


# --- cosda profile ----------------------------------------------------------------------------------------------------


def test_profile_makes_what_source_makes(cosda, unseen: Path, model: Path, photos: Path) -> None:
    answer = cosda("profile", unseen, photos / "one", "--trained-on", "-q")
    assert answer.code == 0, answer.err
    assert "profile of 'one' made of 30 images" in answer.out
    ours, theirs = weights(unseen), weights(model)
    made, wanted = (DomainProfile.from_bytes(one.pop("profile-0.safetensors"), "") for one in (ours, theirs))
    assert ours == theirs
    assert made.key == replace(wanted, calibration=None).key, "the same images, and no labels"
    last = json.loads((unseen / "model.json").read_text())["lineage"][-1]
    assert (last["step"], last["domain"], last["images"]) == ("profile", "one", 30)


def test_a_profile_is_replaced_and_keeps_its_name(cosda, model: Path, photos: Path, tmp_path: Path) -> None:
    before = content(model)
    answer = cosda("profile", model, photos / "two", "--to", tmp_path / "to", "-q")
    assert "profile of 'one' made of 30 images" in answer.out
    assert "takes the place of one of 30 images" in answer.out
    assert content(model) == before
    assert weights(tmp_path / "to")["profile-0.safetensors"] != before["profile-0.safetensors"]
    named = cosda("profile", model, photos / "two", "--domain", "office", "--to", tmp_path / "named", "-q")
    assert "profile of 'office'" in named.out
    assert json.loads(cosda("model", tmp_path / "named", "--json").out)["domains"][0]["domain"] == "office"


def test_the_router_of_a_bank_follows_the_profile(cosda, unseen: Path, photos: Path, tmp_path: Path) -> None:
    bank = adapt(unseen, photos / "three", "aad", carry="bank", epochs=0).model.save(tmp_path / "bank")
    words = ["predict", bank, photos / "one", "--explain", "--format", "json", "-q"]
    before = json.loads(cosda(*words).out)
    assert list(before[0]["posteriors"]) == ["source", "three"]
    answer = cosda("profile", bank, photos / "one", "-q")
    assert answer.code == 0, answer.err
    assert "takes the place of one of BatchNorm statistics" in answer.out
    after = json.loads(cosda(*words).out)
    assert list(after[0]["posteriors"]) == ["one", "three"]
    own = [sum(row["domain"] == name for row in found) for name, found in (("source", before), ("one", after))]
    assert own[1] >= own[0]
    assert own[1] > 25, "the model knows again what it was trained on"


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--domain", "three"], "has an expert for 'three' already"), (["--freeze-encoder"], "encoders of their own")],
)
def test_a_profile_that_does_not_fit_a_bank_is_explained(
    cosda, bank: Path, photos: Path, words: list[str], said: str
) -> None:
    before = content(bank)
    answer = cosda("profile", bank, photos / "one", "-q", *words)
    assert answer.code == 2
    assert said in answer.err
    assert content(bank) == before


def test_a_few_images_make_no_profile(cosda, model: Path, photos: Path, tmp_path: Path) -> None:
    few = tmp_path / "few"
    few.mkdir()
    for path in sorted((photos / "three").iterdir())[:19]:
        shutil.copy(path, few)
    answer = cosda("profile", model, few, "--to", tmp_path / "to", "-q")
    assert answer.code == 2
    assert "19 images" in answer.err
    assert "at least 20" in answer.err
    assert not (tmp_path / "to").exists()


# --- Routes -----------------------------------------------------------------------------------------------------------


def test_explain_tells_where_each_image_went(cosda, bank: Path, photos: Path) -> None:
    words = ["predict", bank, photos / "two", "-q"]
    plain, explained = rows(cosda(*words).out), rows(cosda(*words, "--explain").out)
    added = ["domain", "posterior", "unknown"]
    assert list(explained[0]) == ["image", "class", "probability", *added, "skipped"]
    assert [{key: value for key, value in row.items() if key not in added} for row in explained] == plain
    assert {row["unknown"] for row in explained} <= {"yes", "no"}
    listed = json.loads(cosda(*words, "--explain", "--format", "json").out)
    for row, line in zip(listed, explained, strict=True):
        assert list(row["posteriors"]) == ["one", "two", "three"]
        assert sum(row["posteriors"].values()) == pytest.approx(1)
        assert row["posterior"] == max(row["posteriors"].values()) == row["posteriors"][row["domain"]]
        assert line["domain"] == row["domain"]
        assert line["posterior"] == f"{row['posterior']:.6f}"
        assert (line["unknown"] == "yes") is row["unknown"]


def test_an_unreadable_image_went_nowhere(cosda, bank: Path, photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos / "three", tmp_path / "three")
    (tmp_path / "three" / "05.png").write_bytes(b"no image")
    words = ["predict", bank, tmp_path / "three", "--explain", "-q"]
    found = rows(cosda(*words).out)
    assert [found[5][key] for key in ("class", "domain", "posterior", "unknown")] == [""] * 4
    assert found[5]["skipped"]
    assert all(row["domain"] for number, row in enumerate(found) if number != 5)
    assert "posteriors" not in json.loads(cosda(*words, "--format", "json").out)[5]


@pytest.mark.parametrize(("which", "words"), [(0, []), (2, ["--domain", "two"])])
def test_what_does_not_route_explains_nothing(cosda, stages: list[Path], photos: Path, which: int, words) -> None:
    answer = cosda("predict", stages[which], photos / "two", "--explain", "-q", *words)
    assert (answer.code, answer.out) == (2, "")
    assert "nothing is routed" in answer.err


def test_a_named_domain_is_answered_by_its_expert(cosda, bank: Path, stages: list[Path], photos: Path) -> None:
    words = [photos / "two", "--probabilities", "-q"]
    source = cosda("predict", stages[0], *words).out
    assert cosda("predict", bank, *words, "--domain", "one").out == source
    assert cosda("predict", bank, *words, "--domain", "two").out != source
    wrong = cosda("predict", bank, *words, "--domain", "tow")
    assert (wrong.code, "Did you mean 'two'?" in wrong.err) == (2, True)
    words = ["evaluate", bank, photos / "two", "--json", "-q", "--domain", "one"]
    assert (
        json.loads(cosda(*words).out)["classes"] == json.loads(cosda("evaluate", stages[0], *words[2:]).out)["classes"]
    )


def test_how_many_experts_are_kept_ready_changes_no_number(cosda, bank: Path, photos: Path) -> None:
    words = [photos / "two", "-q"]
    for command in (["predict", bank, *words, "--explain"], ["evaluate", bank, *words]):
        assert cosda(*command, "--experts-in-memory", 1).out == cosda(*command).out
        assert cosda(*command, "--experts-in-memory", 0).code == 2
