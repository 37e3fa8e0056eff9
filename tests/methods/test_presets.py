"""Numbers of the presets that follow from others: whole batches, and rates of the authors' configurations."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import Any

import pytest

from cosda.methods import METHODS


def preset(benchmark: str) -> dict[str, Any]:
    return tomllib.loads((resources.files("cosda") / "presets" / f"{benchmark}.toml").read_text())


def merged(benchmark: str, section: str, method: str, variant: str) -> dict[str, Any]:
    """A section as a method has it: the benchmark's, then the method's, then the variant's."""
    whole = preset(benchmark)
    own, special = (table.get("method", {}).get(method, {}) for table in (whole, whole.get(variant, {})))
    return whole.get(section, {}) | own.get(section, {}) | special.get(section, {})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("variant", ["paper", "authors"])
@pytest.mark.parametrize(
    ("benchmark", "section"), [("domainnet", "source"), ("domainnet", "adapt"), ("visda", "source")]
)
def test_an_epoch_of_30000_images_has_the_authors_number_of_batches_and_none_is_incomplete(
    benchmark: str, section: str, method: str, variant: str
) -> None:
    """They stop after round(30000 / B) batches of a longer loader, so each is whole."""
    settings = merged(benchmark, section, method, variant)
    size = settings["batch_size"]
    assert settings["epoch_images"] == round(30000 / size) * size


def test_the_rotation_head_has_the_studys_rate_on_visda() -> None:
    """The original takes a tenth for all its rates there; the study for none of them."""
    assert preset("visda")["method"]["shot++"]["rotation_rate"] == 1e-2
    assert merged("visda", "adapt", "shot++", "paper")["lr"] == 1e-2
