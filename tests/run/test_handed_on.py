"""What a stage hands on, by models that are known in advance: which epoch, which mean, and what is written of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cosda.models.artifact import load
from cosda.models.network import Network, same_weights
from cosda.run.chain import carried_path
from cosda.watch import Watcher
from drift import grown, model
from tiny import tiny_benchmark

FLOOD = 1000.0  # after such a push every image is of the first class
TENTHS = [tenths / 10 for tenths in range(10)]


class StopsAt(Watcher):
    """Interrupts a run as Ctrl-C does, before the first step of the task whose name ends so."""

    def __init__(self, end: str) -> None:
        self.end_of_task = end

    def begin(self, task: str, steps: int, unit: str = "steps") -> None:
        if task.endswith(self.end_of_task):
            raise KeyboardInterrupt


def agreements(run: Any) -> list[float]:
    return [record["scores"]["agreement"] for record in run.of("validation", stage=1)]


def lineage(run: Any) -> list[dict[str, Any]]:
    """What the last model says of each adaptation."""
    return [step for step in load(carried_path(run)).lineage if step["step"] == "adapt"]


# --- The epoch --------------------------------------------------------------------------------------------------------


def test_the_best_epoch_is_handed_on(drifting: Any, tmp_path: Path) -> None:
    run = drifting(tmp_path, (0.0, FLOOD, 0.0), select="agreement")
    first, *others = agreements(run)
    assert first == 1 > max(others)
    assert [record["epoch"] for record in run.of("chosen")] == [0]
    assert same_weights(model(run, 1), model(run, 0))


def test_of_equal_epochs_the_later_one_is_handed_on(drifting: Any, tmp_path: Path) -> None:
    """It has seen more. Every image is of the first class from the first epoch on."""
    run = drifting(tmp_path, (FLOOD, 1.0, 1.0), select="agreement")
    assert len(set(agreements(run))) == 1
    assert [record["epoch"] for record in run.of("chosen")] == [2]
    assert grown(run, 1) == pytest.approx(FLOOD + 2)


def test_a_stopped_run_remembers_its_best_epoch(drifting: Any, tmp_path: Path) -> None:
    """On each target the first epoch is the best, and on both the run is stopped when two are done."""
    asked: dict[str, Any] = {"pushes": (1e-6, FLOOD, 1.0), "select": "agreement", "domains": ("one", "two", "three")}
    for target in ("two", "three"):
        with pytest.raises(KeyboardInterrupt):
            drifting(tmp_path / "stopped", **asked, watcher=StopsAt(f"→ {target} 3/3"))
    stopped, undisturbed = drifting(tmp_path / "stopped", **asked), drifting(tmp_path / "undisturbed", **asked)
    assert [record["epoch"] for record in undisturbed.of("chosen")] == [0, 0]
    assert stopped.records == undisturbed.records
    assert same_weights(model(stopped, 2), model(undisturbed, 2))
    assert lineage(stopped) == lineage(undisturbed)
    assert [step["domain"] for step in lineage(stopped)] == ["two", "three"]


# --- The mean ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("carry", "wanted"),
    [
        (("carry=last",), 6.0),
        (("carry=interpolate=0.25",), 0.75 * 6),
        # a half of the mean stays after each epoch, whose biases are 1, 3 and 6
        (("carry=along=0.125",), (1 / 2 + 3) / 4 + 6 / 2),
    ],
)
def test_the_mean_is_that_of_its_rule(carry: tuple[str, ...], wanted: float, drifting: Any, tmp_path: Path) -> None:
    run = drifting(tmp_path, (1.0, 2.0, 3.0), *carry)
    assert grown(run, 1) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("carry", "select", "epoch"),
    [
        ("last", "agreement", 0),
        ("interpolate=0.25", "agreement", 0),
        ("along=0.25", "last", 1),
        ("auto=0.5", "last", 1),
    ],
)
def test_a_model_says_which_epoch_and_which_mean_it_is(
    carry: str, select: str, epoch: int, drifting: Any, tmp_path: Path
) -> None:
    chain, other = ("one", "two", "three"), "interpolate" if carry == "last" else "last"
    changes = (f"carry={carry}", f"stage.three.carry={other}")
    run = drifting(tmp_path, (0.0, 3.0), *changes, select=select, domains=chain)
    recorded = [{**chosen, **carried} for chosen, carried in zip(run.of("chosen"), run.of("carried"), strict=True)]
    rule = carry.partition("=")[0]
    assert [record["rule"] for record in recorded] == [rule, other]
    for step, record in zip(lineage(run), recorded, strict=True):
        assert (step["select"], step["epoch"]) == (select, record["epoch"])
        assert (step["carry"], step["share"]) == (record["rule"], record["share"])
    assert recorded[0]["epoch"] == epoch
    shares = {"last": [0], "interpolate": [0.25], "along": [0.25], "auto": TENTHS[1:]}
    assert recorded[0]["share"] in shares[rule]


# --- The share that is found without labels ---------------------------------------------------------------------------


def probabilities(network: Network) -> torch.Tensor:
    """What a network says to the images by which `auto` judges: the target's training images."""
    domain = tiny_benchmark(features=True)["two"]
    images = torch.from_numpy(np.asarray(domain.items)[domain.train])  # type: ignore[index]
    with torch.no_grad():
        return network.eval()(images).logits.double().softmax(dim=1)  # type: ignore[no-any-return]


def mean_of(before: Network, after: Network, share: float) -> Network:
    """The first network, changed to be share·before + (1 - share)·after."""
    other = after.state_dict()
    for name, value in before.state_dict().items():
        if value.is_floating_point():
            value.copy_(share * value + (1 - share) * other[name])
    return before


def entropy(p: list[float]) -> float:
    return -sum(x * math.log(x) for x in p if x > 0)


def test_auto_tries_all_tenths_and_records_what_the_images_say_to_each(drifting: Any, tmp_path: Path) -> None:
    run, adapted = (drifting(tmp_path, (3.0,), f"carry={rule}") for rule in ("auto", "last"))
    [carried] = run.of("carried")
    before, after = (probabilities(model(adapted, stage)).argmax(dim=1).tolist() for stage in (0, 1))
    assert before != after
    wanted = []
    for share in TENTHS:
        rows = probabilities(mean_of(model(adapted, 0), model(adapted, 1), share))
        classes, p = rows.argmax(dim=1).tolist(), rows.tolist()
        mean = [sum(row[c] for row in p) / len(p) for c in range(3)]
        wanted.append(
            {
                "share": share,
                "adapted": sum(a == b for a, b in zip(classes, after, strict=True)) / len(p),
                "incoming": sum(a == b for a, b in zip(classes, before, strict=True)) / len(p),
                "information": entropy(mean) - sum(entropy(row) for row in p) / len(p),
            }
        )
    for name in wanted[0]:
        assert [one[name] for one in carried["tried"]] == pytest.approx([one[name] for one in wanted], abs=1e-4), name
    assert len({one["incoming"] for one in wanted}) > 3, "shares that change nothing show nothing"


@pytest.mark.parametrize("undo", [0.0, 0.3, 0.6, 1.0])
def test_auto_hands_on_the_largest_share_that_undoes_no_more_than_is_allowed(
    undo: float, drifting: Any, tmp_path: Path
) -> None:
    run = drifting(tmp_path, (3.0,), f"carry=auto={undo}")
    [carried] = run.of("carried")
    changed = 1 - carried["tried"][0]["incoming"]
    allowed = [one["share"] for one in carried["tried"] if 1 - one["adapted"] <= undo * changed + 1e-9]
    assert carried["share"] == max(allowed)
    assert grown(run, 1) == pytest.approx(3 * (1 - carried["share"]), rel=1e-5)
