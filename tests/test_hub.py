"""Models and data sets from the hub: what is asked of it, what is kept, and what is said where it does not answer."""

from __future__ import annotations

import inspect
import os
import pickle
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import cosda
from cosda import hub
from cosda.__main__ import app
from cosda.data.doctor import examine
from cosda.errors import CosdaError
from cosda.models.artifact import Model
from cosda.models.encoders import build_encoder
from cosda.models.experts import DomainBank
from mini_hub import MiniHub, served, use
from tiny import CLASSES, SEEN, WIDTH, tiny_domain

huggingface_hub = pytest.importorskip("huggingface_hub")
httpx = pytest.importorskip("httpx")  # on which huggingface_hub stands


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    benchmark = cosda.Benchmark("tiny", {"one": tiny_domain(features=True)}, CLASSES, "inductive")
    runs = tmp_path_factory.mktemp("runs")
    return cosda.train_source(benchmark, "one", epochs=1, machine=cosda.Machine("cpu"), out=runs).model


@pytest.fixture(scope="module")
def bank(model: Model) -> Model:
    machine = cosda.Machine("cpu")
    target = tiny_domain("two", seed=1, features=True)
    return cosda.adapt(model, target, "bn", carry="bank", machine=machine).model


@pytest.fixture
def a_hub(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MiniHub]:
    """A hub with a model and a data set."""
    folder = model.save(tmp_path / "hub" / "model")
    (folder / "weights.pkl").write_bytes(pickle.dumps("never read"))
    (folder / "code.py").write_text("raise SystemExit('never run')\n")
    pets = tmp_path / "hub" / "pets"
    (pets / "data").mkdir(parents=True)
    np.savez(pets / "data" / "arrays.npz", images=np.zeros((3, 8, 8), np.uint8))
    (pets / "pets.py").write_text("raise SystemExit('never run')\n")
    with served({"org/model": folder, "datasets/org/pets": pets}) as server:
        use(monkeypatch, server.address, tmp_path / "cache")
        yield server
        huggingface_hub.close_session()


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No hub at all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        use(monkeypatch, f"http://127.0.0.1:{free.getsockname()[1]}", tmp_path / "cache")
        yield
    huggingface_hub.close_session()


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A hub that listens and never answers, and little patience."""
    monkeypatch.setattr(hub, "_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        use(monkeypatch, f"http://127.0.0.1:{server.getsockname()[1]}", tmp_path / "cache")
        yield
    huggingface_hub.close_session()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens a connection fails the test."""

    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


# --- Models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["model", "bank"])
def test_a_round_trip_without_a_network_keeps_every_bit(kind, tmp_path, no_network, request):
    model = request.getfixturevalue(kind)
    assert model.save_pretrained(tmp_path / "a") is None
    again = Model.from_pretrained(tmp_path / "a")
    assert again.key == model.key
    assert isinstance(again.network, DomainBank) == (kind == "bank")
    again.save_pretrained(str(tmp_path / "b"))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    again.save_pretrained(tmp_path / "a")  # what is there is replaced
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_what_is_no_model_is_never_replaced(model, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(CosdaError, match="exists and is not a model"):
        model.save_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["save_pretrained", "from_pretrained", "push_to_hub"])
def test_the_arguments_are_those_of_huggingface_hub(name):
    theirs = inspect.signature(getattr(huggingface_hub.ModelHubMixin, name)).parameters
    ours = inspect.signature(getattr(Model, name)).parameters
    left_out = {"config", "model_card_kwargs"}  # model.json is the config, and the card follows from the model
    assert [key for key in theirs if key not in left_out] == list(ours)
    for key, parameter in ours.items():
        assert (parameter.kind, parameter.default) == (theirs[key].kind, theirs[key].default), key


def test_a_model_is_fetched_once_and_no_more_of_it_than_a_model(a_hub, model, tmp_path):
    fetched = Model.from_pretrained("org/model")
    assert fetched.key == model.key
    [snapshot] = (tmp_path / "cache" / "models--org--model" / "snapshots").iterdir()
    assert set(contents(snapshot)) == set(contents(tmp_path / "hub" / "model")) - {"weights.pkl", "code.py"}
    files = [path for path in a_hub.asked if "/resolve/" in path]
    assert cosda.load("hf:org/model").key == model.key
    assert [path for path in a_hub.asked if "/resolve/" in path] == files


def test_a_copy_serves_where_nobody_may_be_asked_or_nobody_answers(a_hub, model, tmp_path, monkeypatch):
    Model.from_pretrained("org/model", cache_dir=tmp_path / "mine")
    asked = len(a_hub.asked)
    assert Model.from_pretrained("org/model", cache_dir=tmp_path / "mine", local_files_only=True).key == model.key
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert Model.from_pretrained("org/model", cache_dir=tmp_path / "mine").key == model.key
    assert len(a_hub.asked) == asked
    with pytest.raises(CosdaError, match=r"org/model is not on this machine and cannot be fetched: .*offline"):
        Model.from_pretrained("org/model")


def test_a_model_that_the_hub_does_not_have(a_hub):
    with pytest.raises(CosdaError, match="the hub has no model org/other that you may see") as caught:
        Model.from_pretrained("org/other")
    assert "\n" not in str(caught.value)
    with pytest.raises(CosdaError, match="hf:a/b/c/d: "):
        cosda.load("hf:a/b/c/d")


def test_commands_take_a_model_of_the_hub_and_write_into_folders_alone(a_hub, model, tmp_path, capsys):
    np.savez(tmp_path / "images.npz", images=np.random.default_rng(0).normal(0, 1, (20, WIDTH)).astype(np.float32))
    images = str(tmp_path / "images.npz")
    app(["predict", "hf:org/model", images, "-q"], standalone_mode=False)
    assert len(capsys.readouterr().out.splitlines()) == 21
    with pytest.raises(CosdaError, match=r"hf:org/model is a name on the hub and no folder.*--to FOLDER"):
        app(["profile", "hf:org/model", images, "-q"], standalone_mode=False)
    app(["profile", "hf:org/model", images, "-q", "--to", str(tmp_path / "mine")], standalone_mode=False)
    assert cosda.load(tmp_path / "mine").network.base.profile.name == "one"
    assert cosda.load("hf:org/model").key == model.key


def test_a_damaged_copy_is_noticed(a_hub, tmp_path):
    weights = tmp_path / "hub" / "model" / "head.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00\x01")
    with pytest.raises(CosdaError, match=r"is not the file that its model\.json was written with"):
        Model.from_pretrained("org/model")


def test_code_of_the_owner_runs_only_if_it_is_named(tmp_path, monkeypatch):
    built: list[str] = []

    def build() -> nn.Module:
        built.append("built")
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))

    cosda.wrap(build(), CLASSES, preprocessing=SEEN).save_pretrained(tmp_path / "mine")
    built.clear()
    with pytest.raises(CosdaError, match="only your code can build it"):
        Model.from_pretrained(tmp_path / "mine")
    assert not built
    assert Model.from_pretrained(tmp_path / "mine", build=build).classes == CLASSES


def test_what_is_pushed_is_the_folder_of_the_model(model, tmp_path, monkeypatch):
    sent: dict[str, Any] = {}

    class Api:
        def __init__(self, token: str | None = None) -> None:
            sent["token"] = token

        def repo_info(self, *given: Any, **more: Any) -> None:
            inspect.signature(huggingface_hub.HfApi.repo_info).bind(self, *given, **more)
            answer = httpx.Response(404, request=httpx.Request("GET", "https://huggingface.co"))
            raise huggingface_hub.errors.RepositoryNotFoundError("there is none yet", response=answer)

        def create_repo(self, *given: Any, **more: Any) -> Any:
            inspect.signature(huggingface_hub.HfApi.create_repo).bind(self, *given, **more)
            return huggingface_hub.RepoUrl(f"https://huggingface.co/me/{given[0]}", endpoint="https://huggingface.co")

        def upload_folder(self, **given: Any) -> str:
            inspect.signature(huggingface_hub.HfApi.upload_folder).bind(self, **given)
            sent.update(given, files=contents(Path(given["folder_path"])))
            return "https://huggingface.co/me/pets/commit/1"

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    address = model.save_pretrained(tmp_path / "pets", push_to_hub=True, branch="v2", token="secret", private=True)
    assert address == "https://huggingface.co/me/pets/commit/1"
    assert sent["files"] == contents(tmp_path / "pets")
    assert sent["files"]["README.md"].startswith(b"---\nlibrary_name: cosda\n")  # the model card, as the hub reads it
    assert (sent["repo_id"], sent["revision"], sent["repo_type"]) == ("me/pets", "v2", "model")
    assert sent["token"] == "secret"
    assert not Path(sent["folder_path"]).exists()


def test_a_push_to_a_hub_that_never_answers_is_given_up(model, silent):
    with pytest.raises(CosdaError, match=r"not uploaded to org/pets: no answer from http://127.* \(timed out\)"):
        model.push_to_hub("org/pets")


def test_a_network_of_transformers_is_looked_for_as_patiently(silent):
    pytest.importorskip("transformers")
    with pytest.raises(CosdaError, match=r"the model google/vit is not on this machine .*\(timed out\)"):
        build_encoder("hf/google/vit")


def test_a_push_without_a_network_is_one_line(model, nowhere):
    with pytest.raises(CosdaError, match="the model was not uploaded to org/pets: ") as caught:
        model.push_to_hub("org/pets")
    assert "\n" not in str(caught.value)


# --- Data sets --------------------------------------------------------------------------------------------------------


def test_a_data_set_is_fetched_once_and_read_from_its_copy(a_hub, tmp_path):
    folder = tmp_path / "hub" / "pets"
    pixels = np.arange(3 * 8 * 8, dtype=np.uint8).reshape(3, 8, 8)
    for site in ("barn", "yard"):
        np.savez(folder / "data" / f"{site}.npz", images=pixels, labels=np.array(["cat", "dog", "cat"]))
    assert len(cosda.load_domain("hf:org/pets/data/barn.npz")) == 3
    asked = len(a_hub.asked)
    assert cosda.load_domain("hf:org/pets/data/yard.npz", labels=False).name == "yard"
    assert len(a_hub.asked) == asked
    assert not [path for path in a_hub.asked if path.endswith("pets.py") and "/resolve/" in path]


def test_a_repository_of_tables_has_its_own_name(a_hub, tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "hub" / "pets" / "data"
    (folder / "arrays.npz").unlink()
    table = pyarrow.table({"features": [[float(row), 1.0] for row in range(6)], "label": list("ababab")})
    parquet.write_table(table.slice(0, 4), folder / "train-00000-of-00001.parquet")
    parquet.write_table(table.slice(4), folder / "test-00000-of-00001.parquet")
    domain = cosda.load_domain("hf:org/pets")
    assert (domain.name, len(domain.train), len(domain.test)) == ("pets", 4, 2)
    assert cosda.load_benchmark("hf:org/pets").name == "pets"
    findings = examine("hf:org/pets")
    assert findings.ok
    assert (findings.benchmark, findings.protocol) == ("pets", "inductive")


def test_without_a_network_one_line_says_so_and_nothing_hangs(nowhere, tmp_path):
    with pytest.raises(CosdaError, match="the dataset org/pets is not on this machine and cannot be fetched") as caught:
        cosda.load_domain("hf:org/pets")
    assert "\n" not in str(caught.value)
    (problem,) = examine("hf:org/pets").problems
    assert problem == str(caught.value)


def test_a_hub_that_never_answers_is_given_up(silent):
    with pytest.raises(CosdaError, match=r"cannot be fetched: no answer from http://127.* \(timed out\)"):
        cosda.load_domain("hf:org/pets")


def test_no_network_is_touched_by_paths(tmp_path, no_network):
    np.savez(tmp_path / "arrays.npz", images=np.zeros((3, 8, 8), np.uint8))
    assert len(cosda.load_domain(tmp_path / "arrays.npz")) == 3
    (tmp_path / "hf:odd").mkdir()
    shutil.copy(tmp_path / "arrays.npz", tmp_path / "hf:odd" / "arrays.npz")
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        assert len(cosda.load_domain("hf:odd/arrays.npz")) == 3
    finally:
        os.chdir(here)


def test_from_the_shell_it_is_exit_code_2(tmp_path):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "cosda", "doctor", "hf:org/pets"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert "the dataset org/pets is not on this machine" in done.stdout
    assert not done.stderr


def test_without_huggingface_hub_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CosdaError, match=r"pip install 'cosda\[hub\]'"):
        Model.from_pretrained("org/model")
    with pytest.raises(CosdaError, match=r"pip install 'cosda\[hub\]'"):
        cosda.load_domain("hf:org/pets")
