"""Values from text and TOML, checked against what a dataclass says is possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from cosda.errors import CosdaError, nearest
from cosda.settings import build, check, parse_value, setting, settings_of, shown


@dataclass(frozen=True)
class Example:
    temperature: float = setting(0.07, "sharpness", low=0.01, high=2, symbol="τ")
    epochs: int = setting(20, "how many", low=1)
    flip: bool = setting(True, "mirror")
    name: str = setting("x", "a name")
    mode: Literal["fast", "slow"] = setting("fast", "speed")
    gate: tuple[float, float] = setting((0.0, 0.5), "from, to", low=0, high=1)
    size: int | None = setting(None, "pixels", low=8)
    pair: tuple[float, float] | None = setting(None, "from, to", low=0, high=1)
    hidden: int = 3  # no setting: it has no sentence


KNOWN = settings_of(Example)


def test_settings_are_the_fields_with_a_sentence():
    assert list(KNOWN) == ["temperature", "epochs", "flip", "name", "mode", "gate", "size", "pair"]
    assert (KNOWN["temperature"].symbol, KNOWN["temperature"].default) == ("τ", 0.07)


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("temperature", 1, 1.0),
        ("temperature", 0.01, 0.01),  # ranges are closed
        ("temperature", 2, 2.0),
        ("epochs", 3.0, 3),
        ("flip", False, False),
        ("mode", "slow", "slow"),
        ("gate", [0.1, 1], (0.1, 1.0)),
        ("gate", 0.4, (0.4, 0.4)),
        ("size", "none", None),
        ("size", None, None),
        ("size", 8, 8),
        ("pair", "none", None),
        ("pair", 1, (1.0, 1.0)),
    ],
)
def test_possible_values_get_the_settings_type(key, value, wanted):
    got = check(KNOWN[key], value, "here")
    assert got == wanted
    assert type(got) is type(wanted)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", 0.009),
        ("temperature", 2.001),
        ("temperature", "0.1"),
        ("temperature", True),
        ("temperature", None),
        ("temperature", float("nan")),
        ("epochs", 1.5),
        ("epochs", 0),
        ("epochs", float("inf")),
        ("epochs", float("nan")),
        ("temperature", 10**400),
        ("epochs", True),
        ("flip", 1),
        ("flip", "true"),
        ("name", 3),
        ("mode", "quick"),
        ("mode", ["fast"]),
        ("gate", [0.1]),
        ("gate", [0.1, 0.2, 0.3]),
        ("gate", [0.1, 1.1]),
        ("gate", "ab"),
        ("size", 7),
        ("size", ""),
        ("pair", [0, "none"]),
    ],
)
def test_impossible_values_are_refused_with_key_value_place_and_what_is_allowed(key, value):
    with pytest.raises(CosdaError) as caught:
        check(KNOWN[key], value, "preset x")
    text = str(caught.value)
    assert text.startswith(f"preset x: {key} = {shown(value)} is not possible")
    assert text.endswith(f"it must be {KNOWN[key].allowed}.")


def test_infinity_is_no_number_even_without_an_upper_end():
    one = settings_of(dataclass(type("Open", (), {"__annotations__": {"x": float}, "x": setting(0.0, "any")})))["x"]
    assert check(one, -1e300, "here") == -1e300
    for value in (float("inf"), float("-inf"), float("nan")):
        with pytest.raises(CosdaError):
            check(one, value, "here")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("temperature", "a number from 0.01 to 2"),
        ("epochs", "a whole number, at least 1"),
        ("flip", "true or false"),
        ("name", "a text"),
        ("mode", "one of fast, slow"),
        ("gate", "two numbers [start, end] from 0 to 1"),
        ("size", "a whole number, at least 8, or 'none'"),
        ("pair", "two numbers [start, end] from 0 to 1, or 'none'"),
    ],
)
def test_what_is_allowed_in_words(key, words):
    assert KNOWN[key].allowed == words


def test_build_checks_and_keeps_defaults():
    assert build(Example, {"epochs": 2, "gate": 0.1}, "here") == Example(epochs=2, gate=(0.1, 0.1))


@pytest.mark.parametrize("key", ["temprature", "hidden"])
def test_an_unknown_key_is_named_with_all_known_ones(key):
    with pytest.raises(CosdaError, match=f"here: there is no setting '{key}'.*Known: temperature, epochs"):
        build(Example, {key: 1}, "here")


def test_the_nearest_key_is_offered_only_where_one_is_near():
    assert nearest("temprature", KNOWN) == " Did you mean 'temperature'?"
    assert nearest("qqqq", KNOWN) == ""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("3.0", 3.0),
        ("1e-3", 1e-3),
        ("true", True),
        ("[0.5, 0.7]", [0.5, 0.7]),
        ('"7"', "7"),
        ("none", "none"),
        ("timm/resnet18", "timm/resnet18"),
        ("True", "True"),
        ("", ""),
    ],
)
def test_values_are_read_as_toml_and_bare_words_as_text(text, value):
    got = parse_value(text)
    assert got == value
    assert type(got) is type(value)
