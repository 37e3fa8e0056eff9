"""What a program may rely on: labels are not read, the program around is left alone, data may come in many forms."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

import cosda
from cosda.run.memory import keep_freed_memory
from tiny import read, tiny_benchmark

SMALL = ("network.encoder=small", "network.bottleneck=8", "data.size=16", "data.flip=false", "source.batch_size=8")
QUICK: cosda.Options = {"epochs": 1, "batch_size": 8}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> cosda.Model:
    out = tmp_path_factory.mktemp("source")
    return cosda.train_source(tiny_benchmark(), "one", settings=read(SMALL), epochs=1, out=out).model


def write(folder: Path, images: Any, names: Any) -> Path:
    for number, (image, name) in enumerate(zip(images, names, strict=True)):
        path = folder / name / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(image)).save(path)
    return folder


def weights(model: cosda.Model) -> dict[str, Tensor]:
    return model.network.state_dict()


def same(left: cosda.Model, right: cosda.Model) -> bool:
    return all(torch.equal(value, weights(right)[key]) for key, value in weights(left).items())


# --- Labels -----------------------------------------------------------------------------------------------------------


def test_folder_names_of_a_target_mean_nothing(model: cosda.Model, tmp_path: Path) -> None:
    """Known classes, unknown ones, or none: the same run, by name and by bits, with no accuracy in its records."""
    images = tiny_benchmark()["two"].items
    results = []
    for number, folder in enumerate(("", "a", "zebra")):
        place = write(tmp_path / str(number) / "site", images, [folder] * len(images))  # type: ignore[arg-type]
        results.append(cosda.adapt(model, place, "nrc", out=tmp_path / str(number), **QUICK))
    assert len({result.run.path.name for result in results}) == 1
    assert same(results[0].model, results[1].model)
    assert same(results[0].model, results[2].model)
    assert not list(results[1].run.of("accuracy"))


def test_the_labels_of_a_domain_change_nothing(model: cosda.Model, tmp_path: Path) -> None:
    target = tiny_benchmark()["two"]
    shuffled = target.with_labels_shuffled(3)
    assert target.labels is not None
    assert shuffled.labels is not None
    assert not np.array_equal(target.labels, shuffled.labels)
    one, other = (cosda.adapt(model, domain, "shot", out=tmp_path, **QUICK) for domain in (target, shuffled))
    assert one.run.path == other.run.path


def test_who_wants_to_measure_says_so(model: cosda.Model, tmp_path: Path) -> None:
    target = tiny_benchmark()["two"]
    result = cosda.adapt(model, target, "nrc", check=target, **QUICK)
    assert result.check is not None
    assert result.check.before == cosda.evaluate(model, target)
    assert result.check.after == cosda.evaluate(result.model, target)
    assert same(result.model, cosda.adapt(model, target, "nrc", **QUICK).model), "what is measured decides nothing"


# --- The program around -----------------------------------------------------------------------------------------------


def test_the_program_around_is_left_as_it_was(
    model: cosda.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {key: value.clone() for key, value in weights(model).items()}
    keep_freed_memory.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda *_: pytest.fail("the C library belongs to the program"))
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    machine, benchmark = cosda.Machine(device="cpu", threads=threads + 1), tiny_benchmark()
    cosda.adapt(model, benchmark["two"], "cosda", machine=machine, **QUICK)
    cosda.train_source(benchmark, "one", settings=read(SMALL), epochs=1, out=tmp_path, machine=machine)
    cosda.predict(model, benchmark["two"], machine=machine)
    cosda.evaluate(model, benchmark["two"], machine=machine)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, weights(model)[key]) for key, value in before.items())


def test_an_error_leaves_it_as_it_was_too(model: cosda.Model) -> None:
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    machine = cosda.Machine(device="cpu", threads=threads + 1)
    with pytest.raises(cosda.CosdaError, match="learning rate"):
        cosda.adapt(model, tiny_benchmark()["two"], machine=machine, settings={"lr": 1e30, "lr_end": 1e30}, epochs=2)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)


# --- Data -------------------------------------------------------------------------------------------------------------


class Photos(Dataset[tuple[Image.Image, int]]):
    """Somebody's torch Dataset of images and labels."""

    def __init__(self, images: Any) -> None:
        self.images = [Image.fromarray(np.asarray(image)) for image in images]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, position: int) -> tuple[Image.Image, int]:
        return self.images[position], position % 3


def test_equal_images_adapt_equally_in_whatever_form_they_come(model: cosda.Model, tmp_path: Path) -> None:
    images = tiny_benchmark()["two"].items
    site = write(tmp_path / "site", images, [""] * len(images))  # type: ignore[arg-type]
    paths = sorted(site.glob("*.png"))
    (tmp_path / "list.csv").write_text("path,label\n" + "".join(f"{path},a\n" for path in paths))
    forms = [site, paths, [str(path) for path in paths], tmp_path / "list.csv", Photos(images), Photos(images).images]
    adapted = [cosda.adapt(model, form, "nrc", domain="site", **QUICK).model for form in forms]
    for other in adapted[1:]:
        assert same(adapted[0], other)


def test_predictions_keep_the_order_of_the_input(model: cosda.Model, tmp_path: Path) -> None:
    images = tiny_benchmark()["two"].items
    site = write(tmp_path / "site", images, [""] * len(images))  # type: ignore[arg-type]
    (site / "00.png").write_bytes(b"no image")
    paths = sorted(site.glob("*.png"))
    there, back = cosda.predict(model, paths), cosda.predict(model, paths[::-1])
    assert [one.class_name for one in back] == [one.class_name for one in there][::-1]
    assert [Path(one.image).name for one in there] == [path.name for path in paths]
    assert there[0].skipped
    assert (there[0].class_name, there[0].probability, there[0].top(2)) == ("", None, [])
    best = there[1].top(3)
    assert [p for _, p in best] == sorted((p for _, p in best), reverse=True)
    assert sum(p for _, p in best) == pytest.approx(1, abs=1e-5)


def test_what_is_no_data_is_told_what_is(model: cosda.Model) -> None:
    with pytest.raises(cosda.CosdaError, match="Accepted are a folder of images"):
        cosda.adapt(model, 7)  # type: ignore[arg-type]
