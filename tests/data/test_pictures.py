"""Small pictures are JPEG files of what an image shows; feature vectors have none."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from cosda.data.inputs import load_domain
from cosda.data.pictures import SIDE, picture
from tiny import tiny_domain


def opened(content: bytes | None) -> Image.Image:
    assert content is not None
    image = Image.open(io.BytesIO(content))
    assert image.format == "JPEG"
    return image


def test_pictures_of_files_are_small(tmp_path: Path) -> None:
    for name, colour in (("a.png", "red"), ("b.png", "blue")):
        Image.new("RGB", (900, 400), colour).save(tmp_path / name)
    (tmp_path / "c.png").write_bytes(b"no image")
    domain = load_domain(tmp_path)
    image = opened(picture(domain, 1))
    assert image.size == (SIDE, SIDE)
    red, _, blue = np.asarray(image).mean(axis=(0, 1))
    assert blue > 200 > red
    assert picture(domain, 1) == picture(domain, 1)
    assert picture(domain, 2) is None


def test_arrays_and_images_of_programs_have_pictures_and_features_have_none() -> None:
    domain = tiny_domain()
    assert opened(picture(domain, 3)).size == domain.items.shape[1:3]  # type: ignore[union-attr]
    held = load_domain([Image.new("RGB", (40, 20), "red")])
    assert opened(picture(held, 0)).size == (SIDE, SIDE)
    assert picture(tiny_domain(features=True), 0) is None
