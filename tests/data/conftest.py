"""Tiny made-up images and folders of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Draw = Callable[..., Path]
Tree = Callable[..., Path]


def draw_image(path: Path, seed: int = 0, side: int = 12) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture
def draw() -> Draw:
    """``draw(path, seed)`` saves a small image; equal seeds give equal images."""
    return draw_image


@pytest.fixture
def tree() -> Tree:
    """``tree(root, "a/cat", "b/cat", count=2)`` puts different images into every named folder."""

    def plant(root: Path, *folders: str, count: int = 2, extension: str = ".png") -> Path:
        for number, folder in enumerate(folders):
            for i in range(count):
                draw_image(root / folder / f"{i}{extension}", seed=1000 * number + i)
        return root

    return plant


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test alone."""
    monkeypatch.setenv("COSDA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
