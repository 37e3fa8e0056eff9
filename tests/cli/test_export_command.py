"""From a model folder to a file, and to answers of a program that has never heard of cosda."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cosda.api import adapt

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A photograph, one that lies on its side, a grey one, and one that is partly transparent."""
    folder = tmp_path_factory.mktemp("pictures")
    y, x = np.mgrid[0:1:60j, 0:1:80j]
    colours = (255 * np.stack([x, y, (x + y) / 2], axis=-1)).astype(np.uint8)
    image = Image.fromarray(colours)
    image.save(folder / "a.jpg", quality=95)
    turned = Image.Exif()
    turned[0x0112] = 6
    image.save(folder / "b.jpg", quality=95, exif=turned)
    image.convert("L").save(folder / "c.png")
    image.putalpha(Image.fromarray((255 * x).astype(np.uint8)))
    image.save(folder / "d.png")
    return folder


@pytest.fixture(scope="module")
def without_cosda(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a program that cannot import cosda or torch."""
    folder = tmp_path_factory.mktemp("empty")
    for name in ("cosda", "torch"):
        (folder / f"{name}.py").write_text(f"raise ImportError('no {name} here')\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_a_model_is_exported_and_served_without_cosda(
    cosda, model: Path, photos: Path, pictures: Path, without_cosda: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    made = cosda("export", model, "--to", tmp_path / "model.onnx", "--verify", photos / "three", "-q")
    assert made.code == 0, made.err
    assert re.search(r"model\.onnx: onnx, \d+ KiB\nrun on 30 images: .* no class differs\n", made.out)
    said = cosda("predict", model, pictures, "-q")
    wanted = {row["image"]: row for row in csv.DictReader(io.StringIO(said.out))}
    paths = sorted(map(str, pictures.iterdir()))
    served = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "serve_onnx.py"), str(tmp_path / "model.onnx"), *paths],
        capture_output=True,
        text=True,
        env=without_cosda,
        check=False,
    )
    assert served.returncode == 0, served.stderr
    lines = [line.rsplit(",", 2) for line in served.stdout.splitlines()]
    assert [path for path, _, _ in lines] == paths
    for path, name, probability in lines:
        row = wanted[Path(path).name]
        assert name == row["class"]
        # Pillow and torch round a resized pixel differently now and then.
        assert float(probability) == pytest.approx(float(row["probability"]), abs=1e-3)


def test_experts_apart_are_used_as_the_page_says(
    cosda, model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    bank = adapt(model, photos / "two", "aad", carry="bank", epochs=1, batch_size=8).model
    bank.save(tmp_path / "bank")
    made = cosda("export", tmp_path / "bank", "--to", tmp_path / "experts", "--experts", "separate", "-q")
    assert made.code == 0, made.err
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8"), re.DOTALL)
    images = np.stack([np.asarray(Image.open(path)) for path in sorted((photos / "three").iterdir())])
    monkeypatch.chdir(tmp_path)
    namespace = {"images": images}
    exec(compile(code, "deploy", "exec", dont_inherit=True), namespace)
    from cosda.run.predictor import Predictor

    wanted = Predictor(bank, device="cpu").probabilities(images)
    np.testing.assert_allclose(namespace["probabilities"], wanted, atol=1e-4)


def test_a_wrong_request_writes_nothing(cosda, model: Path, tmp_path: Path) -> None:
    wrong = cosda("export", model, "--to", tmp_path / "model.txt")
    assert wrong.code == 2
    assert "names no format" in wrong.err
    assert cosda("export", tmp_path, "--to", tmp_path / "model.pt").code == 2
    assert not list(tmp_path.iterdir())
