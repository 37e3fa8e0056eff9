"""Temperature and threshold from labelled images, against slow searches and cases that can be reckoned."""

from __future__ import annotations

import pytest
import torch

from cosda.models.calibration import Calibration, calibrate, certainty


def drawn(temperature: float, count: int = 4000) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits whose softmax at a temperature is the true distribution of the labels that are drawn."""
    rng = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(count, 5, generator=rng, dtype=torch.float64)
    return logits * temperature, torch.multinomial(logits.softmax(dim=1), 1, generator=rng)[:, 0]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_is_that_at_which_labels_were_drawn(temperature: float) -> None:
    found = calibrate(*drawn(temperature), held_out=True)
    assert found.temperature == pytest.approx(temperature, rel=0.1)


def test_as_many_images_lie_above_the_threshold_as_are_correct() -> None:
    logits, labels = drawn(2.0)
    found = calibrate(logits, labels, held_out=True)
    above = (certainty(found.probabilities(logits)) > found.threshold).double().mean()
    assert found.accuracy == pytest.approx(float((logits.argmax(dim=1) == labels).double().mean()))
    assert float(above) == pytest.approx(found.accuracy, abs=1e-3)


def test_certainty_is_the_negative_entropy() -> None:
    rows = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], dtype=torch.float64)
    assert certainty(rows).tolist() == pytest.approx([0.0, -0.6931471805599453])


def test_it_is_read_as_it_was_written() -> None:
    found = calibrate(*drawn(1.0), held_out=False)
    assert Calibration.from_json(found.as_json()) == found
    assert Calibration.from_json(None) is None
