"""Whatever happens while a command writes: it ends with one line, and the same command then ends with the same bits."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from cases import CASES
from events import SMALL, Ended, Events, Fate

from benches import results


@dataclass
class Case:
    """A command, how the place looks in which it begins, and what it leaves when nothing happens."""

    events: Events
    begin: Callable[[Path], None]
    words: Callable[[Path], tuple[object, ...]]
    scratch: Path
    codes: tuple[int, ...] = (0,)  # with which it may end

    def __post_init__(self) -> None:
        place = self.place()
        undisturbed = self.run(place).check(self.codes)
        self.count, self.wanted = len(undisturbed.events), self.left(place)

    def place(self) -> Path:
        """A new place, always of one name, because names are written into models."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir()
        self.begin(self.scratch)
        return self.scratch

    def run(self, place: Path, fate: Fate | None = None) -> Ended:
        """Do the command there."""
        return self.events.run(place, *self.words(place), fate=fate)

    def left(self, place: Path) -> dict[str, bytes]:
        """What lies there but for what no two runs have in common."""
        return {name: content for name, content in results(place).items() if not name.endswith("seen")}

    def suffer(self, fate: Fate) -> None:
        """A place where something happens, and where the command is then done again."""
        place = self.place()
        before = replaced(self.left(place))
        disturbed = self.run(place, fate)
        assert len(disturbed.events) >= fate.at
        disturbed.check((-9,) if fate.how in ("kill", "power") else (*self.codes, 2))
        assert replaced(self.left(place)) in (before, replaced(self.wanted)), f"{fate}: neither the old nor the new one"
        self.run(place).check(self.codes)
        left = self.left(place)
        assert left.keys() == self.wanted.keys(), f"{fate}: {left.keys() ^ self.wanted.keys()}"
        assert [name for name in left if left[name] != self.wanted[name]] == [], fate


def replaced(files: dict[str, bytes]) -> dict[str, bytes]:
    """The model that was there before, or the one that took its place."""
    return {name: content for name, content in files.items() if name.startswith("adapted/")}


@pytest.fixture(scope="module")
def run(events: Events, made: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A source model, and two stages with a domain bank."""
    words = ("run", made / "vectors.npz", "--method", "aad", "--carry", "bank", "--set", "source.epochs=1", *SMALL)
    return Case(events, lambda place: None, lambda place: (*words, "--out", place / "runs"), scratch(tmp_path_factory))


@pytest.fixture(scope="module")
def adapt(events: Events, made: Path, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Images are packed, a model is adapted and replaces one that was there."""

    def begin(place: Path) -> None:
        shutil.copytree(made / "model", place / "adapted")

    def words(place: Path) -> tuple[object, ...]:
        to = ("--to", place / "adapted", "--overwrite", "--keep-rejected", "--out", place / "runs")
        return ("adapt", made / "model", made / "photos" / "two", *to, "--cache", place / "cache", *SMALL)

    return Case(events, begin, words, scratch(tmp_path_factory), (0, 3))


def scratch(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("case") / "place"


def chosen(count: int, few: int, seed: int) -> list[int]:
    """Which of so many events: all in the whole run, otherwise a few, by a fixed seed."""
    wanted = min(count, CASES or few)
    return sorted((1 + np.random.default_rng(seed).permutation(count)[:wanted]).tolist())


FATES = {
    "kill": Fate("kill"),
    "power": Fate("power"),
    "full": Fate("ENOSPC", for_good=True),
    "gone": Fate("EIO", for_good=True),
    "stale": Fate("ESTALE"),
    "vanished": Fate("ENOENT"),
}


QUICK = [("run", "power"), ("run", "gone"), ("adapt", "kill"), ("adapt", "full")]


@pytest.mark.parametrize(("command", "fate"), list(itertools.product(("run", "adapt"), FATES)) if CASES else QUICK)
def test_at_every_event(request: pytest.FixtureRequest, command: str, fate: str) -> None:
    case: Case = request.getfixturevalue(command)
    for at in chosen(case.count, 1, len(fate)):
        case.suffer(Fate(**{**vars(FATES[fate]), "at": at}))
