"""The carry rule: what is handed on is the mean that it says, is what is measured, and goes on into the next stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cosda.api import make_plan, run_chain
from cosda.carry.along import Along
from cosda.carry.auto import choose_share
from cosda.carry.base import blend
from cosda.config.request import Request
from cosda.errors import CosdaError
from cosda.methods import METHODS
from cosda.models.artifact import load
from cosda.records.run import Run
from cosda.records.selection import reselect
from cosda.run.chain import carried_path
from cosda.watch import Watcher
from tiny import read, tiny_benchmark

QUICK = (
    *("epochs=2", "batch_size=8", "source.epochs=2", "source.batch_size=8"),
    *("network.bottleneck=8", "lr=0.05", "lr_end=0.05"),
)


def quick(
    out: Path,
    *changes: str,
    method: str = "aad",
    domains: tuple[str, ...] = ("one", "two"),
    features: bool = False,
    **more: Any,
) -> Run:
    images = () if features else ("network.encoder=small", "data.size=16", "data.flip=false")
    changes = (*QUICK, *images, *changes)
    return run_chain(tiny_benchmark(features), method, domains=domains, settings=read(changes), out=out, **more)


def weights(run: Run, stage: int) -> dict[str, Tensor]:
    return load(carried_path(run, stage)).network.state_dict()


@pytest.mark.parametrize("method", METHODS)
def test_what_is_handed_on_lies_between_incoming_and_adapted(method: str, tmp_path: Path) -> None:
    adapted = quick(tmp_path, method=method, features=True)
    halfway = quick(tmp_path, "carry=interpolate=0.25", method=method, features=True)
    before, after, handed = weights(adapted, 0), weights(adapted, 1), weights(halfway, 1)
    for key, value in handed.items():
        if value.is_floating_point():
            torch.testing.assert_close(value, 0.25 * before[key] + 0.75 * after[key], rtol=1e-5, atol=1e-6)
    [carried] = halfway.of("carried")
    assert (carried["stage"], carried["rule"], carried["share"]) == (1, "interpolate", 0.25)


def test_shares_of_nothing_and_of_all(tmp_path: Path) -> None:
    adapted = quick(tmp_path)
    nothing, everything = (quick(tmp_path, f"carry=interpolate={share}") for share in (0, 1))
    assert nothing.matrix() == adapted.matrix()
    assert everything.matrix() == [adapted.matrix()[0]] * 2  # type: ignore[index]
    assert all(torch.equal(value, weights(adapted, 1)[key]) for key, value in weights(nothing, 1).items())


def test_the_next_stage_begins_with_what_was_handed_on(tmp_path: Path) -> None:
    """Where all of the incoming model is handed on, no stage moves it."""
    run = quick(tmp_path, "carry=interpolate=1", domains=("one", "two", "three"))
    matrix = run.matrix()
    assert matrix is not None
    assert matrix == [matrix[0]] * 3


def test_the_mean_along_the_way_leaves_the_share_of_the_incoming_model() -> None:
    """Epochs at 1 and 3 on a line that begins at 0: 0.25 = m² of the first model stays, so m is a half."""
    rule = Along(0.25)
    along = rule.begin(state(0.0))
    for place in (1.0, 3.0):
        along = rule.follow(along, state(place), epochs=2)
    handed, facts = rule.hand_on(state(0.0), state(3.0), along, lambda _: torch.zeros(0))
    assert handed["network"]["w"].item() == pytest.approx(0.25 * 0 + 0.25 * 1 + 0.5 * 3)
    assert facts == {"share": 0.25}


class Stopper(Watcher):
    """Stops the run when the second epoch on a target begins."""

    def begin(self, name: str, total: int, unit: str = "steps") -> None:
        if name.endswith("two 2/2"):
            raise KeyboardInterrupt


def test_a_stopped_run_goes_on_with_its_mean(tmp_path: Path) -> None:
    rule = ("carry=along=0.3",)
    with pytest.raises(KeyboardInterrupt):
        quick(tmp_path / "stopped", *rule, watcher=Stopper())
    stopped, undisturbed = quick(tmp_path / "stopped", *rule), quick(tmp_path / "undisturbed", *rule)
    assert stopped.records == undisturbed.records
    after = weights(undisturbed, 1)
    assert all(torch.equal(value, after[key]) for key, value in weights(stopped, 1).items())


def test_counters_are_not_averaged_and_statistics_are() -> None:
    after, before = state(4.0, count=7), state(2.0, count=3)
    mean = blend(after, before, 0.5)
    assert mean["network"]["w"].item() == 3.0
    assert mean["network"]["count"].item() == 7
    assert [value.item() for value in mean["own"] + mean["merged"]] == [3.0, 3.0]
    assert after["network"]["w"].item() == 4.0, "what is blended stays as it was"


def state(value: float, count: int = 0) -> dict[str, Any]:
    """A model of one weight and one statistic."""
    tensor = torch.tensor(value)
    return {"network": {"w": tensor, "count": torch.tensor(count)}, "own": [tensor], "merged": [tensor]}


def test_auto_takes_the_largest_share_that_undoes_little() -> None:
    agreement = {0.0: 1.0, 0.1: 0.97, 0.2: 0.98, 0.3: 0.9}
    tried = [{"share": share, "adapted": adapted, "incoming": 0.8} for share, adapted in agreement.items()]
    assert choose_share(tried, 0.1) == 0.2  # 2 of the 20 % that were changed
    assert choose_share(tried, 0.0) == 0.0
    assert choose_share(tried[:2], 0.15) == 0.1
    assert choose_share(tried, 0.5) == 0.3
    nothing_changed = [{**one, "incoming": 1.0} for one in tried]
    assert choose_share(nothing_changed, 0.5) == 0.0


def test_auto_sees_images_and_says_what_it_tried(tmp_path: Path) -> None:
    run = quick(tmp_path, "carry=auto=0.9")
    [carried] = run.of("carried")
    assert carried["tried"][0] == {**carried["tried"][0], "share": 0.0, "adapted": 1.0}
    assert carried["share"] == choose_share(carried["tried"], 0.9) > 0
    fixed = quick(tmp_path, f"carry=interpolate={carried['share']}")
    assert fixed.matrix() == run.matrix()
    assert run.label == "aad (carry auto 0.9)"
    assert fixed.label == f"aad (carry interpolate {carried['share']:g})"


def test_a_run_with_a_carry_rule_cannot_be_redrawn(tmp_path: Path) -> None:
    with pytest.raises(CosdaError, match="run it with --select entropy"):
        reselect(quick(tmp_path, "carry=interpolate"), "entropy")


@pytest.mark.parametrize(
    ("changes", "select", "words"),
    [
        (["carry=auto", "adapt.validate=0"], "last", "adapt.validate"),
        (["carry=along"], "entropy", "--carry interpolate"),
        (["carry=half"], "last", "last, interpolate, along, auto"),
        (["carry=0.5"], "last", r"did you mean interpolate=0.5\?"),
        (["carry=last=0.5"], "last", "'last' takes no value"),
        (["carry=interpolate=1.5"], "last", "from 0 to 1"),
        (["carry=interpolate=much"], "last", "a number from 0 to 1"),
    ],
)
def test_impossible_wishes(changes: list[str], select: str, words: str) -> None:
    with pytest.raises(CosdaError, match=words):
        make_plan(tiny_benchmark(), Request.of("aad", settings=read(changes), select=select))
