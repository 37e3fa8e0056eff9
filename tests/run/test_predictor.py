"""A model that stays ready gives what `predict` gives, for whatever holds the images."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image

import cosda
from cosda.errors import CosdaError
from cosda.models.architecture import Architecture
from cosda.models.artifact import Model
from cosda.models.masks import add_masks
from cosda.run.machine import Machine
from cosda.run.predictor import Predictor
from tiny import CLASSES, SEEN, WIDTH, tiny_domain

QUICK = Machine(device="cpu", threads=1)
PIXELS = tiny_domain(count=9).items


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    architecture = Architecture("small", bottleneck=6, classes=3)
    return Model(architecture.build().train(), architecture, CLASSES, SEEN)


@pytest.fixture
def predictor(model) -> Predictor:
    return Predictor(model, device="cpu")


@pytest.fixture
def files(tmp_path):
    """The same images as PNG files, whose names are not in the order of the list."""
    paths = [tmp_path / f"{9 - number}.png" for number in range(len(PIXELS))]
    for path, pixels in zip(paths, PIXELS, strict=True):
        Image.fromarray(pixels).save(path)
    return paths


def scores(predictions):
    return np.stack([one.probabilities for one in predictions])


@pytest.mark.parametrize("count", [1, 9, 150])  # 150: two batches, and enough to fold BatchNorm
def test_it_gives_what_predict_gives_to_the_bit(model, predictor, count):
    images = tiny_domain(count=count).items
    wanted = cosda.predict(model, images, machine=QUICK)
    assert predictor.predict(images) == wanted
    assert predictor.predict(images) == wanted  # and again
    assert np.array_equal(predictor.probabilities(images), scores(wanted))
    np.testing.assert_allclose(predictor.probabilities(images).sum(axis=1), 1, rtol=1e-5)


def test_files_too_and_in_the_order_in_which_they_are_given(model, predictor, files, tmp_path):
    found = predictor.predict(files)
    assert [one.image for one in found] == [str(path) for path in files]
    assert found == cosda.predict(model, files, machine=QUICK)
    backwards = predictor.probabilities([str(path) for path in reversed(files)])
    np.testing.assert_allclose(backwards[::-1], scores(found), rtol=1e-4)
    assert [one.image for one in predictor.predict(tmp_path)] == sorted(path.name for path in files)  # a folder


def test_files_and_what_pillow_made_of_them_are_the_same(predictor, files):
    opened = [Image.open(path) for path in files]
    assert np.array_equal(predictor.probabilities(opened), predictor.probabilities(files))


@pytest.mark.parametrize(
    "form",
    [
        lambda pixels: list(pixels),
        lambda pixels: [torch.from_numpy(one) for one in pixels],
        lambda pixels: [torch.from_numpy(one).permute(2, 0, 1) for one in pixels],
        lambda pixels: [torch.from_numpy(one).permute(2, 0, 1) / 255 for one in pixels],
        lambda pixels: [Image.fromarray(one) for one in pixels],
    ],
)
def test_lists_of_arrays_tensors_and_images_are_alike(predictor, files, form):
    assert np.array_equal(predictor.probabilities(form(PIXELS)), predictor.probabilities(files))


@pytest.mark.parametrize(
    "form", [lambda batch: batch, torch.from_numpy, lambda b: torch.from_numpy(b.transpose(0, 3, 1, 2))]
)
def test_batches_are_alike(predictor, form):
    assert np.array_equal(predictor.probabilities(form(PIXELS)), predictor.probabilities(PIXELS.copy()))


@pytest.mark.parametrize(
    "one",
    [
        PIXELS[4],
        torch.from_numpy(PIXELS[4]),
        torch.from_numpy(PIXELS[4]).permute(2, 0, 1),
        Image.fromarray(PIXELS[4]),
        PIXELS[4][..., 0],
    ],
)
def test_one_image_need_not_stand_in_a_list(predictor, one):
    alone = predictor.probabilities(one)
    assert alone.shape == (1, 3)
    assert np.array_equal(alone, predictor.probabilities([one]))


def test_one_path_need_not_stand_in_a_list_and_batch_size_is_a_limit(model, predictor, files):
    assert np.array_equal(predictor.probabilities(str(files[4])), predictor.probabilities([files[4]]))
    each = Predictor(model, device="cpu", batch_size=1).probabilities(files)
    for path, row in zip(files, each, strict=True):
        assert np.array_equal(predictor.probabilities(path)[0], row)


def test_images_of_several_sizes_are_predicted_together(predictor):
    several = [PIXELS[0], PIXELS[1][:10], Image.fromarray(PIXELS[2]).resize((40, 30))]
    assert predictor.probabilities(several).shape == (3, 3)


def test_the_given_model_is_left_alone_and_changes_to_it_have_no_effect(model, predictor):
    before = predictor.probabilities(PIXELS)
    assert model.network.training
    with torch.no_grad():
        model.network.classifier.bias.add_(torch.tensor([5.0, 0, 0]))
    assert np.array_equal(predictor.probabilities(PIXELS), before)


def test_a_folder_is_read_once(model, tmp_path, monkeypatch):
    predictor = Predictor(str(model.save(tmp_path / "model")), device=torch.device("cpu"))
    monkeypatch.setattr("cosda.run.predictor.load", None)
    assert predictor.classes == CLASSES
    wanted = Predictor(model, device="cpu").probabilities(PIXELS)
    for _ in range(2):
        assert np.array_equal(predictor.probabilities(PIXELS), wanted)


def test_several_threads_may_use_it(predictor):
    wanted = predictor.probabilities(PIXELS)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(predictor.probabilities, [PIXELS] * 8):
            assert np.array_equal(found, wanted)


def test_it_leaves_torch_as_it_was(model, files):
    torch.manual_seed(3)
    expected, threads = torch.rand(1), torch.get_num_threads()
    torch.manual_seed(3)
    Predictor(model, device="cpu").predict(files)
    assert torch.equal(torch.rand(1), expected)
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()


def test_feature_vectors():
    architecture = Architecture("identity", 4, 3, input_width=WIDTH)
    network = architecture.build()
    predictor = Predictor(Model(network, architecture, CLASSES, network.encoder.preprocessing), device="cpu")
    vectors = tiny_domain(count=5, features=True).items
    found = predictor.probabilities(vectors)
    assert found.shape == (5, 3)
    np.testing.assert_allclose(predictor.probabilities(torch.from_numpy(vectors[2]))[0], found[2], rtol=1e-5)
    with pytest.raises(CosdaError, match="the model takes feature vectors of width 12, but data has images"):
        predictor.probabilities(PIXELS)


def test_a_model_with_masks_must_be_told_the_domain(model):
    masked = add_masks(model.network, 6, ("one", "two"))
    architecture = Architecture("small", 6, 3, domains=("one", "two"))
    given = Model(masked, architecture, CLASSES, SEEN)
    with pytest.raises(CosdaError, match="must be told which domain"):
        Predictor(given, device="cpu")
    one, two = (Predictor(given, device="cpu", domain=name).probabilities(PIXELS) for name in ("one", "two"))
    assert not np.array_equal(one, two)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([], "is empty"),
        (3, "cannot be read as images"),
        (np.zeros((2, 5), np.float32), "the model takes images, but data has feature vectors of width 5"),
        ([np.zeros((4, 4, 3), np.int32)], "is of int32"),
        ("nowhere.png", "does not exist"),
    ],
)
def test_what_is_no_image_is_explained(predictor, images, message):
    with pytest.raises(CosdaError, match=message):
        predictor.predict(images)


def test_an_image_that_cannot_be_read_is_named(predictor, files):
    files[2].write_bytes(b"no image")
    with pytest.raises(CosdaError, match=rf"{files[2].name} cannot be read: not an image in a known format"):
        predictor.predict(files)


def test_wrong_settings_are_explained(model):
    with pytest.raises(CosdaError, match="batch_size is 0"):
        Predictor(model, batch_size=0)
    with pytest.raises(CosdaError, match="device 'gpu' cannot be used"):
        Predictor(model, device="gpu")
