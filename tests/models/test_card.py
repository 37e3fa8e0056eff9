"""The model card says what the model is and how it came about, and nothing of the machine that wrote it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cosda
from cosda.models.architecture import Architecture
from cosda.models.artifact import Model, load
from cosda.models.calibration import Calibration
from cosda.models.card import card
from cosda.models.experts import DomainBank
from tiny import CLASSES, SEEN, tiny_domain

VERDICT = {
    "verdict": "doubtful",
    "reasons": ["4 of 10 images changed class", "few images"],
    "before": [0.71, 0.64, 0.78],
    "after": [0.84, 0.78, 0.9],
}
ADAPTED: dict[str, Any] = {
    "step": "adapt",
    "domain": "new | site",
    "method": "aad",
    "carry": "bank",
    "images": 1200,
    "date": "2026-03-04",
    "from": "/home/somebody/models/office",
    "settings": {"alpha": 1},
    "verdict": VERDICT,
}


@pytest.fixture
def bank() -> Model:
    own = nn.Sequential(
        nn.Conv2d(3, 4, 5, 2), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    wrapped = cosda.wrap(own.eval(), CLASSES, preprocessing=SEEN)
    return cosda.adapt(wrapped, tiny_domain("site", 60), "aad", carry="bank=8", epochs=0, batch_size=8).model


def test_the_card_tells_what_the_model_is(model: Model) -> None:
    text = card(replace(model, lineage=[*model.lineage, ADAPTED]))
    for words in (
        "# A classifier of 2 classes",
        "no, yes",
        "encoder `small`",
        "224 × 224 pixels" if model.preprocessing.size == 224 else f"{model.preprocessing.size} pixels",
        "| 2026-03-04 | adapt | new \\| site | aad (carry bank) | doubtful | 1,200 | 71% → 84% |",
        "was **doubtful**",
        "Estimated accuracy after: 84% (78% to 90%).",
        "* 4 of 10 images changed class\n* few images\n",
        "In one of ten cases",
    ):
        assert words in text
    assert "source" in text


def test_the_front_matter_is_what_the_hub_reads(model: Model) -> None:
    head = card(model).split("---\n")[1]
    assert head.startswith("library_name: cosda\npipeline_tag: image-classification\ntags:\n- cosda\n")
    features = Architecture("identity", 4, 2, input_width=6)
    network = features.build()
    text = card(Model(network, features, ("a", "b"), network.encoder.preprocessing))
    assert "pipeline_tag: tabular-classification" in text
    assert "feature vectors of 6 numbers" in text
    assert "## How it came about" not in text, "nobody wrote it down"


def test_a_bank_tells_its_domains_and_who_answers(bank: Model) -> None:
    text = card(bank)
    assert "| source | the network itself | none, BatchNorm statistics |" in text
    assert "| site | an expert of 8 bits | 40 |" in text
    assert 'build="MODULE:FUNCTION"' in text
    assert "| – | wrapped | – | Sequential |" in text


def test_masks_are_named_in_the_example() -> None:
    architecture = Architecture("small", 8, 3, domains=("a", 'b"c'))
    network = architecture.build()
    text = card(Model(network, architecture, CLASSES, SEEN))
    assert "| a | a mask | – |" in text
    assert r'domain="b\"c"' in text


def test_what_was_measured_on_labels_is_told(bank: Model) -> None:
    assert isinstance(bank.network, DomainBank)
    profile = bank.network.experts[0].profile
    known = Calibration(300, 0.987, 1.0, -0.5, held_out=True)
    text = card(bank.with_profile(replace(profile, name="office", calibration=known)))
    assert "98.7% of 300 labelled images of office that it was not trained on" in text


def test_the_python_of_a_card_runs(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = model.save("this-folder")
    benchmark_images = tiny_domain("one", 3).items
    (tmp_path / "photos").mkdir()
    from PIL import Image

    for number in range(3):
        Image.fromarray(benchmark_images[number]).save(tmp_path / "photos" / f"{number}.png")  # type: ignore[index, arg-type]
    [code] = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    exec(compile(code, "card", "exec", dont_inherit=True), {})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["0.png", "1.png", "2.png"]


def test_a_saved_model_has_its_card_which_tells_of_no_machine(model: Model, tmp_path: Path) -> None:
    model.lineage.append(ADAPTED)
    folder = model.save(tmp_path / "one")
    text = (folder / "README.md").read_bytes()
    assert text.decode() == card(model)
    assert load(folder).save(tmp_path / "two").joinpath("README.md").read_bytes() == text
    assert b"/home" not in text
    assert str(tmp_path).encode() not in text


def test_names_from_data_stay_names(model: Model) -> None:
    hostile = "a|b\n# <script>`x`"
    text = card(replace(model, classes=(hostile, "yes"), lineage=[ADAPTED | {"domain": hostile}]))
    assert "<script>" not in text
    assert "\n# &lt;" not in text
    rows = [line for line in text.splitlines() if line.startswith("| 2026")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [8]


def test_a_card_that_somebody_wrote_in_is_not_lost(model: Model, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    model.save(folder, overwrite=True)
    with (folder / "README.md").open("a") as file:
        file.write("Ask Maria before you use it.\n")
    with pytest.raises(cosda.CosdaError, match=r"other files.*README\.md"):
        model.save(folder, overwrite=True)
    assert load(folder).classes == model.classes


def test_a_folder_without_a_card_loads_and_is_replaced_as_before(model: Model, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    (folder / "README.md").unlink()
    description = json.loads((folder / "model.json").read_text())
    del description["sha256"]["README.md"]
    (folder / "model.json").write_text(json.dumps(description))
    assert load(folder).save(folder, overwrite=True).joinpath("README.md").is_file()


def test_a_linked_model_has_a_card_of_its_own(model: Model, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "one")
    linked = load(folder).save(tmp_path / "two", link=True)
    assert (linked / "encoder.safetensors").samefile(folder / "encoder.safetensors")
    assert not (linked / "README.md").samefile(folder / "README.md"), "who writes in one must not change the other"


@pytest.mark.parametrize("entry", ["text", {"step": "adapt", "verdict": {"verdict": "fine"}}, {"images": "many"}])
def test_a_lineage_that_is_none_is_a_clear_error(model: Model, tmp_path: Path, entry: Any) -> None:
    model.lineage.append(entry)
    with pytest.raises(cosda.CosdaError, match="lineage cannot be read"):
        model.save(tmp_path / "model")
    assert not any(tmp_path.iterdir())


def test_the_card_moves_no_random_numbers(model: Model) -> None:
    torch.manual_seed(0)
    wanted = torch.rand(2)
    torch.manual_seed(0)
    card(model)
    assert torch.equal(torch.rand(2), wanted)
