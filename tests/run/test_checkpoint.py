"""A nested state goes to disk and back, whole or not at all."""

from __future__ import annotations

import pytest
import torch

from cosda.errors import CannotWrite, CosdaError
from cosda.run import checkpoint
from cosda.run.checkpoint import load_checkpoint, save_checkpoint
from tiny import tiny_network

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint" / "last.safetensors"


def round_trip(path, state):
    save_checkpoint(path, state)
    return load_checkpoint(path)


def test_plain_values_come_back_with_their_types(path):
    state = {
        "epoch": 3,
        "rate": 0.1 + 0.2,
        "on": True,
        "off": False,
        "nothing": None,
        "text": "€ \u2028",
        1: {2: {"deep": [1, [2, None], {}]}},
        "pairs": [],
        "tensor": "a text that is called tensor",
    }
    got = round_trip(path, state)
    assert got == state
    assert repr(got) == repr(state)  # 1 and True, 3 and 3.0 are equal, but not the same


def test_a_folder_whose_name_is_no_text(tmp_path):
    state = {"weights": torch.arange(6.0), "epoch": 3}
    got = round_trip(tmp_path / "\udcff" / "last.safetensors", state)
    assert torch.equal(got["weights"], state["weights"])
    assert got["epoch"] == 3


def test_a_tuple_comes_back_as_a_list(path):
    assert round_trip(path, (1, (2, 3))) == [1, [2, 3]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_of_every_kind(path, dtype):
    tensors = [(torch.arange(6) % 2).to(dtype).view(2, 3), torch.tensor(1).to(dtype), torch.empty(0, 4, dtype=dtype)]
    for got, wanted in zip(round_trip(path, tensors), tensors, strict=True):
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
        assert torch.equal(got, wanted)


def test_channels_last_shared_and_strided_memory(path):
    whole = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    state = {"whole": whole, "again": whole, "row": whole[0], "turned": whole.permute(3, 0, 1, 2)}
    state["wide"] = torch.rand(3, 1).expand(3, 7)
    got = round_trip(path, state)
    assert all(torch.equal(got[key], value) for key, value in state.items())


def test_bits_survive(path):
    odd = torch.tensor([float("nan"), -0.0, float("inf"), 1e-45])
    got = round_trip(path, {"odd": odd, "inf": float("inf")})
    assert torch.equal(got["odd"].view(torch.int32), odd.view(torch.int32))
    assert got["inf"] == float("inf")


def test_a_network_with_gradients_can_be_saved_and_loaded(path):
    network, other = tiny_network(seed=0), tiny_network(seed=1)
    other.load_state_dict(round_trip(path, dict(network.state_dict(keep_vars=True))))
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=True))


def test_no_checkpoint_is_none(path):
    assert load_checkpoint(path) is None


def test_a_later_change_does_not_reach_what_was_saved(path):
    tensor = torch.zeros(2)
    save_checkpoint(path, tensor)
    tensor.add_(1)
    assert load_checkpoint(path).tolist() == [0, 0]


def test_a_new_checkpoint_replaces_the_old_and_leaves_nothing_beside_it(path):
    for epoch in range(2):
        save_checkpoint(path, {"epoch": epoch})
    assert load_checkpoint(path) == {"epoch": 1}
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def fail_half_way(tensors, name, metadata):
    with open(name, "wb") as file:
        file.write(b"half")
    raise OSError("disk full")


def test_a_write_that_fails_leaves_the_old_checkpoint(path, monkeypatch):
    save_checkpoint(path, {"epoch": 0})
    monkeypatch.setattr(checkpoint, "save_file", fail_half_way)
    with pytest.raises(CannotWrite, match=r"cannot write .*last.safetensors: disk full"):
        save_checkpoint(path, {"epoch": 1})
    monkeypatch.undo()
    assert load_checkpoint(path) == {"epoch": 0}
    assert round_trip(path, {"epoch": 2}) == {"epoch": 2}  # what the failure left does not get in the way


def test_what_cannot_be_stored_is_refused_before_anything_is_written(path):
    with pytest.raises(TypeError):
        save_checkpoint(path, {"what": object()})
    assert not path.exists()


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-5])


def empty(path):
    path.write_bytes(b"")


def nonsense(path):
    path.write_bytes(b"\x80\x04nonsense" * 20)


def without_outline(path):
    checkpoint.save_file({"0": torch.zeros(2)}, str(path))


def outline_without_its_tensor(path):
    checkpoint.save_file({"0": torch.zeros(2)}, str(path), metadata={"outline": '{"tensor": "1"}'})


@pytest.mark.parametrize("damage", [cut_short, empty, nonsense, without_outline, outline_without_its_tensor])
def test_a_damaged_file_is_named(path, damage):
    save_checkpoint(path, {"x": torch.zeros(100)})
    damage(path)
    with pytest.raises(CosdaError, match=r"last\.safetensors is damaged .* Delete it"):
        load_checkpoint(path)


def test_nothing_is_pickled(path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("pickled")

    for module in ("torch.save", "torch.load", "pickle.loads", "pickle.dumps"):
        monkeypatch.setattr(module, refuse)
    assert round_trip(path, {"a": torch.ones(1), 2: [None]})[2] == [None]


def test_processes_are_alike_if_every_bit_of_their_states_is(monkeypatch):
    told = []

    def everyone(digest):
        told.append(digest)
        return told[-2:]

    monkeypatch.setattr(checkpoint.collectives, "world", lambda: 2)
    monkeypatch.setattr(checkpoint.collectives, "everyone", everyone)
    state = {"epoch": 1, "student": {"weight": torch.tensor([1.0, 2.0])}}
    assert checkpoint.alike(state)
    assert checkpoint.alike({"epoch": 1, "student": {"weight": torch.tensor([1.0, 2.0])}})
    assert not checkpoint.alike({"epoch": 1, "student": {"weight": torch.tensor([1.0, 2.0000002])}})
    assert not checkpoint.alike(state), "nor is the state again what it was compared with"
    assert not checkpoint.alike({"epoch": 2, "student": state["student"]})
