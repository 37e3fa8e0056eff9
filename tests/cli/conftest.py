"""The command line as its user meets it, with a few images and a small model of them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cosda.__main__ import main
from tiny import read, tiny_benchmark


class Answer:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def cosda(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def call(*words: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["cosda", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three domains of images on disk, one of them unlabelled."""
    root = tmp_path_factory.mktemp("photos")
    for domain in tiny_benchmark():
        labels = domain.labels
        for number, (image, label) in enumerate(zip(domain.items, labels, strict=True)):  # type: ignore[call-overload]
            folder = root / domain.name / ("" if domain.name == "three" else "abc"[label])
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.asarray(image)).save(folder / f"{number:02}.png")
    return root


@pytest.fixture(scope="module")
def model(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from cosda.api import train_source

    changes = ("source.epochs=8", "network.encoder=small", "data.size=16", "network.bottleneck=8", "source.lr=0.05")
    out = tmp_path_factory.mktemp("source")
    return train_source(photos, "one", settings=read((*changes, "source.encoder_rate=1")), out=out).model.save(
        out / "model"
    )
