"""Files that are no data: classifiers to import, exported models, and what lies in the cache."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path

import pytest
import safetensors.torch
import torch
from cases import CASES
from corpus import evil
from hypothesis import given
from hypothesis import strategies as st
from making import SEEDS, change_file, changed, hurt, place, replace_by_a_thing
from nets import classifier


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier in every form that can be imported, and the names of its classes."""
    folder = tmp_path_factory.mktemp("weights")
    state = classifier().state_dict()
    torch.save(state, folder / "x.pth")
    torch.save({"model": state, "epoch": 3, "optimizer": {"lr": 0.1}}, folder / "nested.pt")
    torch.save(state, folder / "old.pth", _use_new_zipfile_serialization=False)
    safetensors.torch.save_file(state, folder / "x.safetensors")
    (folder / "classes.txt").write_text("a\nb\nc\n")
    (folder / "classes.json").write_text(json.dumps({"0": "a", "1": "b", "2": "c"}))
    (folder / "list.json").write_text(json.dumps(["a", "b", "c"]))
    if CASES:
        with warnings.catch_warnings(action="ignore"):
            shapes = ({0: torch.export.Dim("batch")},)
            images = torch.zeros(2, 3, 16, 16)
            program = torch.export.export(classifier().eval(), (images,), dynamic_shapes=shapes)
            torch.export.save(program, folder / "x.pt2")
            torch.onnx.export(classifier().eval(), (images,), folder / "x.onnx", dynamo=False,
                              dynamic_axes={"images": {0: "batch"}}, input_names=["images"])  # fmt: skip
    return folder


@pytest.mark.parametrize("name", ["x.pth", "x.pt", "x.safetensors", "classes.txt", "classes.json"])
@pytest.mark.parametrize("what", ["pickle", "pipe", "terabyte", "brackets", "not finite"])
def test_what_once_did_harm_does_none(server, weights, tmp_path, name, what):
    with place(tmp_path) as folder:
        data = folder / "data"
        shutil.copytree(weights, data, dirs_exist_ok=True)
        (data / "x.pt").write_bytes((data / "x.pth").read_bytes())
        file = data / name
        if what == "not finite" and file.suffix in (".pth", ".pt"):
            torch.save({key: value * torch.nan for key, value in classifier().state_dict().items()}, file)
        elif what == "pipe":
            file.unlink()
            os.mkfifo(file)
        else:
            file.write_bytes({"pickle": evil(folder), "brackets": b"[" * 3000}.get(what, b"\xff"))
            os.truncate(file, 10**12 if what == "terabyte" else file.stat().st_size)
        model, names = (data / "x.pth", file) if name.startswith("classes") else (file, data / "classes.txt")
        words = ("import", model, "--classes", names, "--to", folder / "out" / "new", "--size", "16")
        server.run(*words, "--build", "nets:classifier").check((2,))
        assert list((folder / "out").iterdir()) == []


@given(SEEDS)
def test_classifiers_to_import(server, weights, tmp_path_factory, rng):
    with place(tmp_path_factory.getbasetemp()) as folder:
        data = folder / "data"
        shutil.copytree(weights, data, dirs_exist_ok=True)
        forms = sorted(
            path for path in data.iterdir() if path.suffix in (".pth", ".pt", ".safetensors", ".pt2", ".onnx")
        )
        file, names = rng.choice(forms), rng.choice([data / "classes.txt", data / "classes.json", data / "list.json"])
        match rng.choice(("file", "file", "file", "names", "pickle")):
            case "file" if rng.random() < 0.3 and file.suffix in (".pth", ".pt"):
                state = classifier().state_dict()
                key = rng.choice(sorted(state))
                state[key] = rng.choice([torch.zeros(()), state[key] * torch.nan, state[key].long(), state[key][:1], 3])
                torch.save(rng.choice([state, {"a": state, "b": state}, [state], {}, {1: state}]), file)
            case "file":
                change_file(file, rng)
            case "names":
                how = rng.choice((0, 1, 2))
                if how == 0 and names.suffix == ".json":
                    names.write_text(json.dumps(changed(json.loads(names.read_bytes()), rng)))
                elif how == 1:
                    replace_by_a_thing(names, rng)
                else:
                    names.write_bytes(hurt(names.read_bytes(), rng))
            case "pickle":
                file.write_bytes(evil(folder))
        build = () if file.suffix in (".pt2", ".onnx") else ("--build", "nets:classifier")
        words = ("import", file, "--classes", names, "--to", folder / "out" / "new", "--size", "16", *build)
        server.run(*words).check((0, 2))


@pytest.fixture(scope="session")
def packed(server, models) -> tuple[Path, dict[str, str]]:
    """A cache with the pixels of images, and what a model says of them."""
    cache = models["images"].parent / "cache"
    said = {}
    for name in ("predict", "evaluate"):
        words = (name, models["images"], models["images"].parent / "photos", "--quiet", "--cache", cache)
        said[name] = server.run(*words).check([0]).out
    return cache, said


@given(st.sampled_from(["predict", "evaluate", "check", "check --json", "prune"]), SEEDS)
def test_what_lies_in_the_cache(server, packed, models, tmp_path_factory, name, rng):
    whole, said = packed
    with place(tmp_path_factory.getbasetemp()) as folder:
        cache = folder / "data" / "cache"
        shutil.copytree(whole, cache)
        for _ in range(rng.randint(1, 2)):
            files = sorted(path for path in cache.rglob("*") if path.is_file() and path.stat().st_size < 10**6)
            if files:
                file = rng.choice(files)
                if file.suffix == ".json" or rng.random() < 0.5:
                    change_file(file, rng)
                else:
                    file.write_bytes(hurt(file.read_bytes(), rng))
        if name in said:
            images = models["images"].parent / "photos"
            outcome = server.run(name, models["images"], images, "--quiet", "--cache", cache).check((0, 2))
            assert outcome.code == 2 or outcome.out == said[name]
        else:
            server.run("cache", *name.split(), "--cache", cache).check((0, 2))
