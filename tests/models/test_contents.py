"""What a model folder holds is read from its files: also of a network that only the user's code can build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch import nn

import cosda
from cosda.models.contents import read_contents
from tiny import CLASSES, SEEN, tiny_domain


def test_a_wrapped_model_needs_no_code(tmp_path: Path) -> None:
    mine = nn.Sequential(
        nn.Conv2d(3, 4, 5, 2), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    wrapped = cosda.wrap(mine.eval(), CLASSES, preprocessing=SEEN)
    bank = cosda.adapt(wrapped, tiny_domain("site", 60), "aad", carry="bank=8", epochs=0, batch_size=8).model
    found = read_contents(bank.save(tmp_path / "bank"))
    assert found.architecture.encoder == "wrapped"
    assert [(one.domain, one.images, one.bits, one.method) for one in found.domains] == [
        ("source", 0, None, None),
        ("site", 40, 8, "aad"),
    ]
    assert found.lineage[0] == {"wrapped": "Sequential"}
    assert found.classes == CLASSES
    assert json.loads(json.dumps(found.as_json()))["domains"][1]["domain"] == "site"


def test_a_model_that_was_adapted_whole_before_is_the_base(tmp_path: Path) -> None:
    settings = {"network.bottleneck": 8, "source.batch_size": 8}
    benchmark = cosda.Benchmark("own", {"one": tiny_domain("one", 60)}, CLASSES)
    few: cosda.Options = {"encoder": "small", "size": 16, "epochs": 0, "settings": settings}  # type: ignore[typeddict-item]
    model = cosda.train_source(benchmark, "one", out=tmp_path, **few).model
    for name, carry in (("two", "last"), ("three", "bank")):
        data = tiny_domain(name, 60, seed=3)
        model = cosda.adapt(model, data, "bn" if carry == "last" else "aad", carry=carry, epochs=0, batch_size=8).model
    base, expert = read_contents(model.save(tmp_path / "model")).domains
    assert (base.domain, base.method, base.began) == ("two", "bn", None)
    assert (expert.domain, expert.method, expert.began) == ("three", "aad", "two")


def test_what_is_missing_or_damaged_is_explained(tmp_path: Path) -> None:
    with pytest.raises(cosda.CosdaError, match="which does not exist"):
        read_contents(tmp_path / "nowhere")
    wrapped = cosda.wrap(nn.Sequential(nn.Flatten(), nn.Linear(768, 3)), CLASSES, preprocessing=SEEN)
    bank = cosda.adapt(wrapped, tiny_domain("site", 60), "aad", carry="bank", epochs=0, batch_size=8).model
    path = bank.save(tmp_path / "bank")
    (path / "expert-1.safetensors").rename(tmp_path / "away")
    with pytest.raises(cosda.CosdaError, match=r"expert-1.safetensors cannot be read: No such file"):
        read_contents(path)
    (tmp_path / "away").rename(path / "expert-1.safetensors")
    (path / "profile-1.safetensors").write_bytes(b"")
    with pytest.raises(cosda.CosdaError, match="is not the file that its"):
        read_contents(path)
    (path / "model.json").write_text("{}")
    with pytest.raises(cosda.CosdaError, match="damaged"):
        read_contents(path)
