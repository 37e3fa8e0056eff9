"""Model folders that are damaged or made up to mislead: no command may do more than say so."""

from __future__ import annotations

import shutil

import pytest
from cases import CASES
from corpus import MODELS
from hypothesis import given
from hypothesis import strategies as st
from making import SEEDS, change_file, hashed_again, place

QUIET = ("--quiet",)
COMMANDS = {
    "model": lambda model, data, out: ("model", model),
    "model --json": lambda model, data, out: ("model", model, "--json"),
    "model --drop": lambda model, data, out: ("model", model, "--drop", "two", "--to", out / "new"),
    "history": lambda model, data, out: ("history", model),
    "predict": lambda model, data, out: ("predict", model, data, "--output", out / "found.csv", *QUIET),
    "predict --explain": lambda model, data, out: ("predict", model, data, "--explain", "--format", "json", *QUIET),
    "evaluate": lambda model, data, out: ("evaluate", model, data, "--json", *QUIET),
    "adapt": lambda model, data, out: ("adapt", model, data, "--to", out / "new", "--out", out / "runs", *FEW),
    "adapt --carry": lambda model, data, out: (
        *("adapt", model, data, "--to", out / "new", "--out", out / "runs", "--carry", "bank", "--method", "aad"),
        *("--domain", "three", "--keep-rejected", *FEW),
    ),
    "run": lambda model, data, out: (
        *("run", str(data).split("#")[0], "--model", model, "--method", "aad", "--out", out / "runs"),
        *("--domains", "one,two", *FEW),
    ),
    "profile": lambda model, data, out: ("profile", model, data, "--to", out / "new", "--labelled", *QUIET),
    "monitor": lambda model, data, out: ("monitor", model, data, *QUIET),
    "diff": lambda model, data, out: ("diff", model, OTHER[0], data, "--output", out / "found.html", *QUIET),
    "export": lambda model, data, out: ("export", model, "--to", out / "new.pt", *QUIET),
}
FEW = ("--epochs", "1", "--quiet")
OTHER = [None]  # the same model, undamaged
CODES = {"monitor": (0, 2, 4, 5)}  # it tells a scheduler what to do
KINDS = ("features", "images", "bank", "bank", *(("graph",) if CASES else ()))


@pytest.fixture(scope="session")
def folders(models, request):
    """By kind the model folder and data for it."""
    if CASES:
        models = models | {"graph": request.getfixturevalue("graph")}
    files = {name: models["images"].parent / f"{'images' if name in ('images', 'graph') else 'vectors'}.npz"
             for name in models}  # fmt: skip
    return {name: (folder, f"{files[name]}#two") for name, folder in models.items()}


@pytest.mark.parametrize("case", MODELS)
def test_what_once_did_harm_does_none(server, models, tmp_path, case):
    vectors, images = (models["images"].parent / f"{kind}.npz" for kind in ("vectors", "images"))
    for kind in ("bank", "images") if CASES or "image" in case or "deviation" in case else ("bank",):
        data = f"{images if kind == 'images' else vectors}#two"
        for name in COMMANDS if CASES else ("model", "predict"):
            with place(tmp_path) as folder:
                model = folder / "data" / "model"
                shutil.copytree(models[kind], model)
                MODELS[case](model)
                hashed_again(model)
                OTHER[0] = models[kind]
                server.run(*COMMANDS[name](model, data, folder / "out")).check(CODES.get(name, (0, 2, 3)))


@given(st.sampled_from(KINDS), st.sampled_from(list(COMMANDS)), SEEDS)
def test_model_folders(server, folders, tmp_path_factory, kind, command, rng):
    whole, data = folders[kind]
    with place(tmp_path_factory.getbasetemp()) as folder:
        model = folder / "data" / "model"
        shutil.copytree(whole, model)
        for _ in range(rng.randint(1, 2)):
            files = sorted(path for path in model.iterdir() if path.is_file() and path.stat().st_size < 10**6)
            said = [path for path in files if path.name == "model.json"]
            file = rng.choice(said if said and rng.random() < 0.5 else files)
            change_file(file, rng)
        if rng.random() < 0.6:
            hashed_again(model)
        OTHER[0] = whole
        server.run(*COMMANDS[command](model, data, folder / "out")).check(CODES.get(command, (0, 2, 3)))
