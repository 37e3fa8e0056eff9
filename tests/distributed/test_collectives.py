"""Two processes do what one does: every method, source training, and the exchanges beneath them.

`together.py` beside this file is what both do. Two start together once, and every test looks at what they left.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import together
import torch
from together import BATCH, COUNT, mixed_images
from torch import Tensor, nn

from cosda.distributed import collectives, env
from cosda.methods import METHODS
from cosda.models.artifact import load
from cosda.models.experts import DomainBank
from cosda.models.network import Network
from cosda.models.statistics import FeatureNorm, SharedFeatureNorm, share_statistics
from cosda.randomness import derive
from cosda.records.run import find_runs
from tiny import tiny_network
from waiting import HANG

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
NEAR = 1e-5


@pytest.fixture(scope="module")
def one() -> dict[str, Any]:
    return together.everything()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks left."""
    out, tests = tmp_path_factory.mktemp("ranks"), str(Path(__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}
    command = [*TORCHRUN, str(Path(together.__file__)), str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    ranks = [torch.load(out / f"rank-{rank}.pt", weights_only=True) for rank in range(2)]
    return [rank | {"folder": str(out)} for rank in ranks]


def numbers(tree: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """All tensors and numbers of a nested value, with their names."""
    if isinstance(tree, dict | list | tuple):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from numbers(value, f"{name}/{key}")
    elif isinstance(tree, Tensor):
        yield name, tree
    elif isinstance(tree, int | float):
        yield name, torch.tensor(tree, dtype=torch.float64)


def assert_near(found: Any, wanted: Any, tolerance: float) -> None:
    found, wanted = dict(numbers(found)), dict(numbers(wanted))
    assert found.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_gives_what_one_process_gives(name: str, one: dict[str, Any], two: list[dict[str, Any]]) -> None:
    """Weights, momentum, banks, labels, teachers and losses; the network has no BatchNorm."""
    assert two[0]["world"] == 2
    assert_near(two[0]["adapted"][name], one["adapted"][name], NEAR)
    assert_near(two[1]["adapted"][name], two[0]["adapted"][name], 0)
    if METHODS[name]().fixed_epochs is None:
        before = together.plain_network(name == "gsfda").state_dict()
        after = two[0]["adapted"][name]["state"]["student"]
        assert max(float((after[key] - before[key]).abs().max()) for key in before) > 100 * NEAR


@pytest.mark.parametrize("name", ["source", "gsfda"])
def test_source_training_gives_what_one_process_gives(name: str, one: Any, two: Any) -> None:
    assert_near(two[0]["supervised"][name], one["supervised"][name], NEAR)
    assert_near(two[1]["supervised"][name], two[0]["supervised"][name], 0)


@pytest.mark.parametrize("name", ["bn", "cosda", "shot"])
def test_with_batch_norm_on_cpus_the_ranks_agree_and_one_process_is_near(name: str, one: Any, two: Any) -> None:
    """Each rank normalises with its own rows, so means agree with one process and variances are a little smaller."""
    first, second, alone = (each["batch_norm"][name] for each in (*two, one))
    assert_near(first, second, 0)
    state, wanted = first["state"]["student"], alone["state"]["student"]
    for key in state:
        if key.startswith("encoder.1.running"):
            torch.testing.assert_close(state[key], wanted[key], rtol=0.15, atol=0.02)


def test_each_image_is_read_by_one_rank(two: list[dict[str, Any]]) -> None:
    whole = [set(rank["views"]["index"][: COUNT - COUNT % BATCH].tolist()) for rank in two]
    left = set(two[0]["views"]["index"][COUNT - COUNT % BATCH :].tolist())  # three images: too few to share
    assert len(left) == 3
    read = [rank["views"]["read"] for rank in two]
    assert whole[0] == whole[1]
    assert left <= set(read[0]) & set(read[1])
    shares = [set(each) - left for each in read]
    assert not shares[0] & shares[1]
    assert shares[0] | shares[1] == whole[0]
    assert [len(each) for each in read] == [3 * 5 + 3, 3 * 4 + 3]  # nothing is read twice


def test_views_of_shares_are_those_of_the_whole_batch_to_the_bit(one: Any, two: Any) -> None:
    for rank in two:
        assert torch.equal(rank["views"]["index"], one["views"]["index"])
        for found, wanted in zip(rank["views"]["views"], one["views"]["views"], strict=True):
            assert torch.equal(found, wanted)


@pytest.mark.parametrize("count", [8, 5, 3, 1])
def test_gradients_are_those_of_the_whole_batch(count: int, one: Any, two: Any) -> None:
    """Even, uneven and too small to share; of what is gathered and of what every rank computes in full."""
    for rank in two:
        assert_near(rank["gradients"][count], one["gradients"][count], 1e-6)


def test_dropout_differs_between_ranks_and_all_see_all_of_it(two: Any) -> None:
    first, second = (rank["dropped"] for rank in two)
    assert torch.equal(first, second)
    assert not torch.equal(first[:4], first[4:])


def test_a_network_with_dropout_stays_in_step_though_each_rank_drops_other_features(two: Any) -> None:
    first, second = (rank["dropout"] for rank in two)
    assert_near(first["training"], second["training"], 0)
    assert first["seed"] == derive(0, 1, 1, "network") != second["seed"]


def test_ranks_that_come_apart_are_told_so(two: Any) -> None:
    for rank in two:
        begun, later = rank["apart"]
        assert begun.startswith("CosdaError: the processes of this run begin with other weights than each other on")
        assert later.startswith("CosdaError: the processes of this run have come apart in epoch 2 on target.")


def test_a_program_makes_the_same_calls_on_all_ranks_and_one_writes(two: Any) -> None:
    first, second, folder = two[0]["calls"], two[1]["calls"], Path(two[0]["folder"])
    assert_near(first, second, 0)
    (run,) = find_runs([folder / "runs"])
    assert len(run.records) == first["records"] > 5
    written = load(folder / "adapted")
    assert [step["step"] for step in written.lineage] == ["source", "adapt"]
    assert_near(written.network.state_dict(), first["network"], 0)
    assert len(list((folder / "runs" / "sources").glob("*/done.json"))) == 1


def test_a_bank_that_several_processes_made_is_one_and_answers_as_one_process_does(two: Any) -> None:
    first, second, folder = two[0]["bank"], two[1]["bank"], Path(two[0]["folder"])
    assert first["key"] == second["key"]
    written = load(folder / "bank")
    assert written.key == first["key"]
    assert isinstance(written.network, DomainBank)
    assert written.network.known == ("one", "two", "three")
    for count, answers in first["answers"].items():
        assert torch.equal(answers, second["answers"][count])
        torch.testing.assert_close(answers, written.network(mixed_images(count)).logits, rtol=1e-4, atol=1e-5)
    (run,) = [run for run in find_runs([folder / "banks"]) if "three" in run.domains]
    assert len(run.records) == first["records"] > 5


# --- One process ------------------------------------------------------------------------------------------------------


def test_alone_nothing_is_shared_and_nothing_copied() -> None:
    rows = torch.randn(5, 3)
    assert (collectives.world(), collectives.rank(), collectives.is_main()) == (1, 0, True)
    assert collectives.share(5) == slice(0, 5)
    assert collectives.gather_rows(rows, 5) is rows
    assert collectives.everyone("x") == ["x"]
    assert collectives.from_first("x") == "x"


@pytest.mark.parametrize(
    ("count", "world", "sizes"),
    [(8, 2, [4, 4]), (9, 2, [5, 4]), (4, 2, [2, 2]), (3, 2, [3, 0]), (0, 2, [0, 0]), (11, 4, [3, 3, 3, 2])],
)
def test_shares(count: int, world: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has two rows or more, or one hands in all; then all compute all."""
    found = []
    for rank in range(world):
        monkeypatch.setattr(collectives, "_here", env.Place(rank, world, rank))
        assert collectives._sizes(count) == sizes
        found += list(range(count))[collectives.share(count)]
    assert found == list(range(count)) * (world if sizes[0] == count else 1)


def test_only_torchrun_makes_a_process_one_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert env.place() == env.ALONE
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job")
    assert env.place() == env.Place(rank=1, world=4, local=0)


def test_on_gpus_batch_norm_becomes_synchronised_and_keeps_its_weights() -> None:
    """Only GPUs can train such layers; what a CPU can show is that they predict, copy and store as before."""
    network, images = tiny_network("batch_norm").train(), torch.randn(6, 3, 16, 16)
    network(images)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    network.eval()
    wanted = network(images).logits
    for _ in range(2):  # a network may be moved to a device twice
        share_statistics(network)
    kinds = [type(module) for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    assert kinds == [nn.SyncBatchNorm, SharedFeatureNorm]
    assert not any(isinstance(module, FeatureNorm) for module in network.modules())
    assert network.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    torch.testing.assert_close(network(images).logits, wanted)
    single = Network(nn.Identity(), SharedFeatureNorm(4), nn.Linear(4, 3)).train()
    assert single(torch.ones(1, 4)).features.tolist() == [[pytest.approx(1, abs=1e-4)] * 4]
