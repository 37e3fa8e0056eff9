"""The chain that led to a model, from its lineage alone, and what became of the folders on the way."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import cosda as package
from cosda.models.artifact import Model, load

VERDICT = {"verdict": "accepted", "reasons": ["sure"], "before": [0.7, 0.6, 0.8], "after": [0.9, 0.85, 0.95]}


def next_model(before: Path, to: Path, **facts: Any) -> Path:
    """A model that was adapted from one in a folder."""
    old = load(before)
    step = {"step": "adapt", "domain": to.name, "method": "aad", "carry": "bank", "images": 400, "date": "2026-03-04"}
    return replace(old, lineage=[*old.lineage, {**step, "from": str(before.resolve()), **facts}]).save(to)


@pytest.fixture
def chain(model: Path, tmp_path: Path) -> list[Path]:
    source = Path(shutil.copytree(model, tmp_path / "models" / "source"))
    first = next_model(source, tmp_path / "models" / "first", verdict=VERDICT)
    doubtful = VERDICT | {"verdict": "doubtful", "reasons": ["few images"], "after": None}
    return [source, first, next_model(first, tmp_path / "models" / "second", verdict=doubtful)]


def test_the_chain_is_told_oldest_first(cosda, chain: list[Path]) -> None:
    answer = cosda("history", chain[-1])
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    [first] = [line for line in lines if " first " in line and "/" not in line]
    for word in ("2026-03-04", "400", "aad (carry bank)", "accepted", "70% → 90%"):
        assert word in first
    assert "step 3, doubtful: few images" in lines
    assert "sure" not in answer.out, "what was accepted needs no excuse"
    for number, folder in enumerate(chain, start=1):
        assert any(line.startswith(f"  {number}  {folder}, ") and line.endswith("iB") for line in lines)


def test_python_and_json_tell_the_same(cosda, chain: list[Path]) -> None:
    steps = package.history(chain[-1])
    assert [(step.step, step.domain) for step in steps] == [("source", "one"), ("adapt", "first"), ("adapt", "second")]
    assert [step.folder for step in steps] == chain
    assert [step.found for step in steps] == ["there"] * 3
    assert [step.bytes for step in steps] == [sum(f.stat().st_size for f in folder.iterdir()) for folder in chain]
    assert steps[1].before == package.Estimate(0.7, 0.6, 0.8)
    assert (steps[2].verdict, steps[2].after, steps[2].change) == ("doubtful", None, "")
    told = json.loads(cosda("history", chain[-1], "--json").out)
    assert told["steps"] == json.loads(json.dumps([step.as_json() for step in steps]))
    assert told["steps"][1]["after"]["accuracy"] == 0.9
    assert told["steps"][1]["began"] == str(chain[0])


def test_what_became_of_older_folders(cosda, chain: list[Path]) -> None:
    shutil.rmtree(chain[0])
    load(chain[-1]).save(chain[1], overwrite=True)
    assert [step.found for step in package.history(chain[-1])] == ["gone", "replaced", "there"]
    out = cosda("history", chain[-1]).out
    assert f"  1  {chain[0]}, gone\n" in out
    assert f"  2  {chain[1]}, where another model lies now\n" in out


def test_folders_that_were_moved_together_are_found(chain: list[Path], tmp_path: Path) -> None:
    moved = chain[0].parent.rename(tmp_path / "archive")
    assert [step.folder for step in package.history(moved / "second")] == [moved / folder.name for folder in chain]


def test_the_way_back_is_the_older_folder(cosda, chain: list[Path], photos: Path) -> None:
    before = package.history(chain[-1])[0].folder
    assert before is not None
    assert (
        cosda("predict", before, photos / "three", "-q").out == cosda("predict", chain[0], photos / "three", "-q").out
    )


def test_a_damaged_predecessor_does_no_harm(chain: list[Path]) -> None:
    (chain[0] / "model.json").write_text("{")
    assert [step.found for step in package.history(chain[-1])] == ["replaced", "there", "there"]


def test_steps_whose_folders_nobody_wrote_down(cosda, model: Path, chain: list[Path], tmp_path: Path) -> None:
    """A profile is written into the folder of its model, and takes the place of what was there."""
    stepped = next_model(chain[1], tmp_path / "x", **{"step": "profile", "from": None})
    assert [step.found for step in package.history(stepped)] == ["there", None, "there"]
    assert "  2  replaced in its folder by step 3\n" in cosda("history", stepped).out
    unknown = next_model(chain[1], tmp_path / "z", **{"from": None})
    assert "  2  where it lay was not written down\n" in cosda("history", unknown).out
    assert "nobody wrote down" in cosda("history", replace(load(model), lineage=[]).save(tmp_path / "y")).out


@pytest.mark.parametrize(
    "lineage",
    [7, ["text"], [{"step": "adapt", "verdict": {"verdict": "fine"}}], [{"images": "many"}], [{"verdict": [1]}]],
)
def test_a_damaged_lineage_is_a_clear_error(cosda, model: Path, tmp_path: Path, lineage: Any) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    description = json.loads((folder / "model.json").read_text()) | {"lineage": lineage}
    (folder / "model.json").write_text(json.dumps(description))
    answer = cosda("history", folder)
    assert (answer.code, answer.out) == (2, "")
    assert f"{folder / 'model.json'} is damaged" in answer.err


def test_what_adapt_writes_down_is_found(model: Path, photos: Path, tmp_path: Path) -> None:
    first = package.adapt(model, photos / "two", "aad", carry="bank", epochs=1, batch_size=8)
    second = package.adapt(first.model, photos / "three", "aad", carry="bank", epochs=1, batch_size=8)
    source, one, two = package.history(second.model.save(tmp_path / "second"))
    assert (source.folder, source.found) == (model, "there")
    assert (one.domain, one.began, one.folder) == ("two", str(model), None), "the first one was never saved"
    assert first.verdict is not None
    assert (one.verdict, one.reasons) == (first.verdict.verdict, first.verdict.reasons)
    assert (two.domain, two.began, two.folder) == ("three", None, tmp_path / "second")


def test_what_is_no_model_has_no_history(cosda, tmp_path: Path) -> None:
    answer = cosda("history", tmp_path / "nowhere")
    assert (answer.code, "does not exist" in answer.err) == (2, True)


def test_the_lineage_grows_by_the_same_for_each_stage(model: Path, photos: Path, tmp_path: Path) -> None:
    """Each folder holds each step once, with its settings: it grows with the stages, and not with their square."""
    sizes, now = [], load(model)
    for number in range(4):
        now = package.adapt(now, photos / "three", "aad", domain=f"d{number}", epochs=0, batch_size=8).model
        assert isinstance(now, Model)
        sizes.append(len(json.dumps(now.lineage)))
    assert len(now.lineage) == 5
    growth = [after - before for before, after in pairwise(sizes)]
    assert max(growth) < 1.5 * min(growth)
