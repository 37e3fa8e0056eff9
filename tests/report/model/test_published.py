"""The paper's numbers: all there, found under this package's names, and equal to the averages that it prints."""

from __future__ import annotations

import csv
import tomllib
from collections import Counter
from importlib.resources import files
from itertools import permutations
from pathlib import Path

import pytest

import cosda
from cosda import metrics
from cosda.report.model.published import NETWORKS, published

RESULTS = Path(__file__).parents[4] / "shared" / "paper" / "results.csv"
DOMAINS = {
    "office31": ("amazon", "dslr", "webcam"),
    "officehome": ("Art", "Clipart", "Product", "RealWorld"),
    "domainnet": ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
}
CHAIN = ("real", "infograph", "clipart", "painting", "sketch", "quickdraw")


def lines() -> list[dict[str, str]]:
    text = files("cosda.report.model").joinpath("published.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def average(benchmark: str, label: str, measure: str) -> float:
    found = [getattr(published(benchmark, pair, label), measure) for pair in permutations(DOMAINS[benchmark], 2)]
    return metrics.mean(found) * 100


@pytest.mark.parametrize(
    ("benchmark", "label", "accuracy", "drop"),
    [
        ("office31", "shot", 87.33, 4.77),
        ("office31", "cosda", 87.31, 1.40),
        ("office31", "cosda (no-mi)", 84.59, 0.52),
        ("office31", "cosda+aad", 89.64, 2.06),
        ("officehome", "shot++", 71.71, 12.24),
        ("officehome", "cotta", 61.67, 0.40),
        ("officehome", "cosda+nrc", 70.93, 5.74),
    ],
)
def test_averages_are_those_that_the_paper_prints(benchmark: str, label: str, accuracy: float, drop: float) -> None:
    assert average(benchmark, label, "accuracy") == pytest.approx(accuracy, abs=0.0051)
    assert average(benchmark, label, "drop") == pytest.approx(drop, abs=0.0051)


def test_the_source_row_is_in_the_order_of_its_columns() -> None:
    """As printed, D2A would be 78.11: above every adapted model. docs/published.md has the evidence."""
    assert published("office31", ["dslr", "amazon"], "source").accuracy == 0.5729
    assert published("office31", ["amazon", "dslr"], "source").accuracy == 0.7811
    assert published("officehome", ["Art", "Clipart"], "source").accuracy == 0.4898
    assert average("office31", "source", "accuracy") == pytest.approx(76.87, abs=0.0051)
    assert average("officehome", "source", "accuracy") == pytest.approx(60.45, abs=0.0051)
    worse = [
        (line["benchmark"], line["chain"], line["method"])
        for line in lines()
        if line["benchmark"] in ("office31", "officehome") and line["measure"] == "accuracy"
        and float(line["value"]) < 100 * source_of(line) - 0.5
    ]  # fmt: skip
    assert len(worse) == 1


def source_of(line: dict[str, str]) -> float:
    return published(line["benchmark"], line["chain"].split(">"), "source").accuracy or 0.0


@pytest.mark.parametrize("name", ["RealWorld", "Real World", "Real_World", "REAL WORLD"])
def test_domains_are_found_however_they_are_spelt(name: str) -> None:
    assert published("officehome", [name, "art"], "cosda").accuracy == 0.7334


def test_chains_have_their_backward_transfer() -> None:
    assert published("domainnet", CHAIN, "cosda").bwt == -0.086
    assert published("domainnet", CHAIN, "aad").bwt == -0.3679
    assert published("officehome", DOMAINS["officehome"], "dac").bwt == -0.08
    assert published("domainnet", CHAIN[::-1], "cosda").bwt is None


def test_visda_has_every_class() -> None:
    numbers = published("visda", ["synthetic", "real"], "cosda")
    assert len(numbers.classes) == 12
    assert (numbers.classes["knife"].accuracy, numbers.classes["knife"].drop) == (0.9098, 0.0155)
    mean = metrics.mean([one.accuracy or 0 for one in numbers.classes.values()])
    assert numbers.accuracy == pytest.approx(mean, abs=5.1e-5)


def test_what_the_paper_does_not_have_is_none() -> None:
    for place in (("digits", ["print", "hand"]), ("office31", ["amazon"]), ("office31", ["amazon", "print"])):
        numbers = published(*place, "cosda")
        assert (numbers.accuracy, numbers.drop, numbers.bwt, dict(numbers.classes)) == (None, None, None, {})
    assert published("office31", ["amazon", "dslr"], "bn").accuracy is None
    assert published("office31", ["amazon", "dslr"], "source").drop is None


def test_every_name_is_one_of_ours() -> None:
    ablations = tomllib.loads(files("cosda").joinpath("presets/ablations.toml").read_text(encoding="utf-8"))
    known = set(cosda.METHODS) | {f"{method} ({name})" for method, names in ablations.items() for name in names}
    assert {line["method"] for line in lines()} <= known
    assert {line["benchmark"] for line in lines()} == set(NETWORKS)
    keys = [(line["benchmark"], line["chain"], line["method"], line["class"], line["measure"]) for line in lines()]
    assert [key for key, count in Counter(keys).items() if count > 1] == []
    assert len(keys) == 1595


@pytest.mark.skipif(not RESULTS.is_file(), reason="the numbers read from the paper are not on this machine")
def test_no_number_is_lost_or_changed() -> None:
    with RESULTS.open(encoding="utf-8") as file:
        read = [line for line in csv.DictReader(file)]
    office = ("Office31", "OfficeHome")
    kept = [line for line in read if not (line["method"] == "Vanilla" and line["dataset"] in office)]
    assert Counter((one["metric"], one["value"]) for one in kept) == Counter(
        (one["measure"], one["value"]) for one in lines()
    )
