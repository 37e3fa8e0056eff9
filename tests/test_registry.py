"""Entries by name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from cosda.errors import CosdaError
from cosda.registry import Registry


@dataclass
class Fruit:
    title: str = ""


FRUITS = Registry("fruit", {"apple": Fruit("grows here"), "pear": Fruit()})


def test_an_entry_is_found_by_its_name():
    assert FRUITS.find("apple") is FRUITS["apple"]


def test_an_unknown_name_gets_the_nearest_one_and_all_others():
    with pytest.raises(CosdaError, match=r"there is no fruit 'aple'. Did you mean 'apple'\? Known: apple, pear\."):
        FRUITS.find("aple")


def test_help_names_what_was_added_from_outside():
    fruits = Registry("fruit", FRUITS)
    fruits["plum"] = Fruit("is blue")
    assert fruits.described() == "apple: grows here; pear; plum: is blue"
