"""Edge operators, and where a loader mixes edges into images and where it does not."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from cosda.api import make_plan
from cosda.config.plan import Plan
from cosda.config.request import Request
from cosda.config.schema import EdgeSettings, Optimisation, SourceSettings
from cosda.data.edges import DEXINED_MEAN, DexiNedEdges, EdgeMixing, new_dexined, sobel
from cosda.data.loader import Loader
from cosda.errors import CosdaError
from cosda.preprocessing import IMAGENET, Preprocessing
from cosda.run.edges import open_edges
from tiny import CPU, SEEN, tiny_benchmark, tiny_domain, tiny_loader


def noise(count: int = 3, side: int = 32, how: Preprocessing = IMAGENET) -> Tensor:
    pixels = torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(0))
    return (pixels - torch.tensor(how.mean).view(3, 1, 1)) / torch.tensor(how.std).view(3, 1, 1)


def box(how: Preprocessing = SEEN) -> Tensor:
    """A bright box on a dark ground."""
    pixels = torch.zeros(1, 3, 32, 32)
    pixels[:, :, 8:24, 8:24] = 1
    return (pixels - torch.tensor(how.mean).view(3, 1, 1)) / torch.tensor(how.std).view(3, 1, 1)


@pytest.fixture(scope="module")
def dexined() -> DexiNedEdges:
    torch.manual_seed(0)
    return DexiNedEdges(new_dexined())


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "dexined.pth"
    torch.save(new_dexined().state_dict(), path)
    return path


# --- Operators --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sobel", "dexined"])
def test_edges_are_stretched_from_nought_to_one_in_each_image(name: str, dexined: DexiNedEdges) -> None:
    operator = sobel if name == "sobel" else dexined
    images = noise()
    images[1] *= 0.01  # of low contrast
    edges = operator(images, IMAGENET)
    assert edges.shape == (3, 1, 32, 32)
    for one in edges:
        assert one.min() == 0
        assert one.max() == 1
    assert torch.equal(operator(images, IMAGENET), edges)
    torch.testing.assert_close(operator(images[2:], IMAGENET), edges[2:], rtol=0, atol=0.02)


def test_sobel_is_white_but_for_the_outline() -> None:
    edges = sobel(box(), SEEN)[0, 0]
    assert edges[8, 12] == edges[12, 8] < 0.5
    for row, column in ((2, 2), (16, 16), (29, 3)):
        assert edges[row, column] == 1
    assert edges[7, 12] == edges[8, 12], "the edge lies between two pixels"


def test_a_image_of_one_colour_has_no_edges() -> None:
    flat = torch.zeros(2, 3, 16, 16)
    assert bool((sobel(flat, SEEN) == 1).all())


def test_colours_of_equal_brightness_have_an_edge_between_them() -> None:
    pixels = torch.zeros(1, 3, 16, 16)
    pixels[:, 0, :, :8] = 1
    pixels[:, 1, :, 8:] = 1
    edges = sobel((pixels - 0.5) / 0.5, SEEN)[0, 0]
    assert edges[5, 8] == 0


def test_dexined_gets_centred_bgr_unless_it_is_fed_as_the_authors_do(dexined: DexiNedEdges) -> None:
    images = noise(2)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (IMAGENET.mean, IMAGENET.std))
    pixels = 255 * (images * std + mean)
    seen = dexined._input(images, IMAGENET)
    for channel, value in enumerate(DEXINED_MEAN):
        torch.testing.assert_close(seen[:, channel], pixels[:, 2 - channel] - value, rtol=0, atol=1e-3)
    stretched = DexiNedEdges(dexined.network, "authors")._input(images, IMAGENET)
    assert [(float(one.min()), float(one.max())) for one in stretched] == [(0, 255), (0, 255)]
    torch.testing.assert_close(stretched[0], 255 * (images[0] - images[0].min()) / (images[0].max() - images[0].min()))


def test_dexined_edges_are_the_mean_of_seven_inverted_maps_of_eight_bits(dexined: DexiNedEdges) -> None:
    image = noise(1)
    network, seen = dexined.network, dexined._input(image, IMAGENET)
    with torch.no_grad():
        sides = network.get_features(seen)  # type: ignore[operator]
        maps = [*sides, network(seen)]
    total = torch.zeros(32, 32)
    for one in maps:
        grey = one.sigmoid()[0, 0]
        eight = (255 * (grey - grey.min()) / (grey.max() - grey.min())).to(torch.uint8)
        total += (~eight).float() / 7
    wanted = (total - total.min()) / (total.max() - total.min())
    torch.testing.assert_close(dexined(image, IMAGENET)[0, 0], wanted, rtol=0, atol=0.02)


def test_making_dexined_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    new_dexined()
    assert torch.equal(torch.get_rng_state(), before)


# --- Mixing -----------------------------------------------------------------------------------------------------------


def test_the_mixture_by_hand() -> None:
    image = noise(2)
    edges = sobel(image, IMAGENET)
    mixed = EdgeMixing(sobel, 0.9, 5)(image, IMAGENET)
    torch.testing.assert_close(mixed, 0.9 * image + 0.1 * edges.expand(2, 3, 32, 32))


def loaders(share: float = 0.9, epochs: int = 20, clean_epochs: int = 2) -> tuple[Loader, Loader]:
    """The same images without edges and with them."""
    clean = tiny_loader()
    training = Optimisation(edgemix=share, epochs=epochs)
    return clean, replace(
        clean, edges=open_edges(EdgeSettings(clean_epochs=clean_epochs), training, tiny_domain(), CPU)
    )


def images(loader: Loader, view: str, epoch: int = 0) -> list[Tensor]:
    loader.begin_epoch(epoch)
    batches = [*loader.epoch(1, epoch, (view,)), *loader.sweep(view)]
    return [batch.images for batch in batches]


@pytest.mark.parametrize("view", ["weak", "strong"])
def test_training_views_have_edges_in_epochs_and_in_sweeps(view: str) -> None:
    clean, mixed = loaders()
    for one, other in zip(images(clean, view), images(mixed, view), strict=True):
        torch.testing.assert_close(other, 0.9 * one + 0.1 * sobel(one, SEEN))
        assert not torch.equal(one, other)


def test_test_views_are_clean() -> None:
    clean, mixed = loaders()
    assert all(torch.equal(a, b) for a, b in zip(images(clean, "test"), images(mixed, "test"), strict=True))


def test_the_last_epochs_are_clean_sweeps_included() -> None:
    clean, mixed = loaders(epochs=5, clean_epochs=2)
    for epoch in range(5):
        pairs = zip(images(clean, "weak", epoch), images(mixed, "weak", epoch), strict=True)
        assert {torch.equal(a, b) for a, b in pairs} == {epoch >= 3}


def test_without_clean_epochs_the_last_has_edges_and_with_many_none_has() -> None:
    clean, mixed = loaders(epochs=2, clean_epochs=0)
    assert not torch.equal(images(clean, "weak", 1)[0], images(mixed, "weak", 1)[0])
    clean, mixed = loaders(epochs=2, clean_epochs=9)
    assert torch.equal(images(clean, "weak")[0], images(mixed, "weak")[0])


def test_a_share_of_one_is_off() -> None:
    clean, mixed = loaders(1.0)
    assert mixed.edges is None
    assert all(torch.equal(a, b) for a, b in zip(images(clean, "weak"), images(mixed, "weak"), strict=True))


def test_mixing_is_equal_for_equal_seeds() -> None:
    first, again = (images(loaders()[1], "strong") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_feature_vectors_pass_as_they_are() -> None:
    vectors = tiny_loader("features")
    mixed = replace(vectors, edges=EdgeMixing(sobel, 0.5, 9))
    assert all(torch.equal(a, b) for a, b in zip(images(vectors, "weak"), images(mixed, "weak"), strict=True))
    assert open_edges(EdgeSettings(), Optimisation(edgemix=0.5), tiny_domain(features=True), CPU) is None


# --- Settings ---------------------------------------------------------------------------------------------------------


def test_the_users_weights_are_read(weights: Path) -> None:
    settings = EdgeSettings(operator="dexined", weights=str(weights))
    edges = open_edges(settings, SourceSettings(edgemix=0.5), tiny_domain(), CPU)
    assert edges is not None
    assert isinstance(edges.operator, DexiNedEdges)
    saved = torch.load(weights, weights_only=True)
    for key, value in edges.operator.network.state_dict().items():
        assert torch.equal(value, saved[key])
    assert not edges.operator.network.training
    items = tiny_domain(count=4).items
    loader = Loader(items, np.arange(4), SEEN, CPU, 4, edges=edges)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = next(iter(loader.epoch(0, 0)))
    assert bool(batch.images.isfinite().all())


def test_dexined_without_a_file_says_what_to_do(tmp_path: Path) -> None:
    def plan(**settings: float) -> Plan:
        return make_plan(tiny_benchmark(), Request.of("nrc", settings={"edges.operator": "dexined", **settings}))

    with pytest.raises(CosdaError, match=r"needs edges\.weights\. Download .*edges\.operator=sobel"):
        plan(edgemix=0.9)
    plan()  # nothing to mix, nothing to miss
    settings, training = EdgeSettings("dexined", str(tmp_path / "none.pth")), Optimisation(edgemix=0.9)
    with pytest.raises(CosdaError, match=r"there is no file .*none\.pth\. Download"):
        open_edges(settings, training, tiny_domain(), CPU)
    torch.save({"other": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(CosdaError, match="does not fit"):
        open_edges(replace(settings, weights=str(tmp_path / "other.pth")), training, tiny_domain(), CPU)
