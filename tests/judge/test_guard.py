"""When a training is stopped, or not begun."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cosda.judge.evidence import diversity
from cosda.judge.guard import Guard, unfit_images
from tiny import tiny_loader


def says(classes: list[int], count: int = 3) -> torch.Tensor:
    """Probabilities that are certain of these classes."""
    return torch.nn.functional.one_hot(torch.tensor(classes), count).double()


def test_diversity_counts_classes_by_their_weight() -> None:
    assert diversity(torch.tensor([0, 1, 2, 0, 1, 2]), 3) == pytest.approx(1)
    assert diversity(torch.tensor([1, 1, 1]), 3) == pytest.approx(1 / 3)
    assert diversity(torch.tensor([0, 0, 1, 1]), 4) == pytest.approx(2 / 4)


def test_too_few_images_are_no_ground_for_anything() -> None:
    found = unfit_images(tiny_loader(count=19), 3)
    assert found is not None
    assert "19 images for 3 classes; at least 20" in found
    assert unfit_images(tiny_loader(count=20), 3) is None
    assert "at least 40 are needed" in (unfit_images(tiny_loader(count=39), 40) or "")


@pytest.mark.parametrize("kind", ["batch_norm", "features"])
def test_copies_of_one_image_are_noticed(kind: str) -> None:
    loader = tiny_loader(kind, count=30)
    copies = replace(loader, items=np.asarray(loader.items[np.r_[np.arange(12), np.zeros(18, dtype=np.int64)]]))
    assert unfit_images(loader, 3) is None
    assert "only 12 of 30 images differ" in (unfit_images(copies, 3) or "")


def test_predictions_that_fall_together_stop_the_training() -> None:
    even = [0, 1, 2, 3, 4, 5] * 10
    guard = Guard(torch.tensor(even))
    assert guard.stop(says(even, 6)) is None
    assert guard.stop(says([0, 1, 2, 3, 4, 4] * 10, 6)) is None
    assert "one class" in (guard.stop(says([0] * 58 + [1, 2], 6)) or "")


def test_few_classes_are_no_collapse_where_the_incoming_model_saw_no_more() -> None:
    assert Guard(torch.tensor([0] * 60)).stop(says([0] * 60, 6)) is None


def test_classes_that_flip_late_stop_the_training_and_early_they_do_not() -> None:
    one, other = [0, 1, 2] * 20, [1, 2, 0] * 20
    guard = Guard(torch.tensor(one))
    assert guard.stop(says(other)) is None
    assert guard.stop(says(one)) is None
    assert "100% of the images changed" in (guard.stop(says(other)) or "")
    assert guard.stop(says(other)) is None
