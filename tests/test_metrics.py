"""Numbers from a 3 x 3 matrix, worked out on paper."""

from __future__ import annotations

import pytest

from cosda import metrics

# The paper's R: a row for each domain, a column for each stage. The package stores the transpose.
R = [
    [0.90, 0.80, 0.60],  # source
    [0.40, 0.70, 0.75],  # first target
    [0.30, 0.35, 0.65],  # second target
]
ACCURACY = [list(stage) for stage in zip(*R, strict=True)]


def test_backward_transfer_is_the_papers_formula():
    size = 3
    slow = sum(R[i][size - 1] - R[i][i] for i in range(size - 1)) / (size - 1)
    assert metrics.backward_transfer(ACCURACY) == pytest.approx(slow) == pytest.approx((-0.30 + 0.05) / 2)


def test_backward_transfer_without_the_source_may_be_positive():
    assert metrics.backward_transfer(ACCURACY, include_source=False) == pytest.approx(0.05)


def test_domain_and_stage_are_not_confused():
    assert metrics.backward_transfer(R) != pytest.approx(metrics.backward_transfer(ACCURACY))


def test_forgetting_counts_from_the_best_since_its_own_stage():
    # Source: 0.90 - 0.60; first target: its best since stage 1 is the last, so 0.
    assert metrics.forgetting(ACCURACY) == pytest.approx((0.30 + 0.0) / 2)
    # What the source model could do on a target (0.95) before its own stage is not counted as forgotten.
    early = [[0.9, 0.95, 0.1], [0.9, 0.7, 0.1], [0.9, 0.6, 0.5]]
    assert metrics.forgetting(early) == pytest.approx((0 + 0.1) / 2)


def test_forward_transfer_compares_with_the_source_model():
    assert metrics.forward_transfer(ACCURACY) == pytest.approx(0.35 - 0.30)  # only the second target was seen early


def test_source_drop_adaptation_and_average():
    assert metrics.source_drop(ACCURACY) == pytest.approx(0.90 - 0.60)
    assert metrics.adaptation(ACCURACY) == pytest.approx((0.70 + 0.65) / 2)
    assert metrics.average_accuracy(ACCURACY) == pytest.approx((0.60 + 0.75 + 0.65) / 3)


def test_a_negative_drop_is_not_clamped():
    assert metrics.source_drop([[0.5, 0.1], [0.6, 0.2]]) == pytest.approx(-0.1)


def test_a_chain_of_one_target():
    pair = [[0.9, 0.5], [0.8, 0.7]]
    assert metrics.backward_transfer(pair) == pytest.approx(-0.1)
    assert metrics.backward_transfer(pair, include_source=False) is None
    assert metrics.forward_transfer(pair) is None
    assert metrics.adaptation(pair) == 0.7


def test_a_source_model_alone():
    alone = [[0.9]]
    assert metrics.backward_transfer(alone) is metrics.forgetting(alone) is metrics.adaptation(alone) is None
    assert metrics.source_drop(alone) == 0
    assert metrics.average_accuracy(alone) == 0.9


@pytest.mark.parametrize("matrix", [[], [[0.5, 0.5]], [[0.5], [0.5, 0.5]]])
def test_a_matrix_that_is_not_square_is_refused(matrix):
    with pytest.raises(ValueError, match="square"):
        metrics.backward_transfer(matrix)


def test_mean_and_spread():
    assert metrics.mean([1, 2, 6]) == 3
    assert metrics.spread([1, 2, 6]) == pytest.approx(7**0.5)  # (4 + 1 + 9) / 2
    assert metrics.spread([0.4]) == 0
    with pytest.raises(ValueError, match="no values"):
        metrics.mean([])


def test_top1_weighs_images_and_per_class_weighs_classes():
    correct, images = [9, 1], [90, 2]
    assert metrics.top1(correct, images) == pytest.approx(10 / 92)
    assert metrics.per_class(correct, images) == pytest.approx((0.1 + 0.5) / 2)


def test_a_class_that_does_not_occur_is_left_out_of_the_mean():
    assert metrics.per_class([3, 0, 0, 4], [4, 0, 2, 4]) == pytest.approx((0.75 + 0 + 1) / 3)


def test_counts_of_different_classes_are_refused():
    with pytest.raises(ValueError):
        metrics.per_class([1, 2], [1, 2, 3])


def test_harmonic_mean_is_high_only_where_both_are() -> None:
    both = [[0.9, 0.5], [0.8, 0.6]]
    assert metrics.harmonic_mean(both) == pytest.approx(2 * 0.6 * 0.8 / 1.4)
    assert metrics.harmonic_mean([[0.9, 0.5], [0.0, 1.0]]) == 0.0
    assert metrics.harmonic_mean([[0.9, 0.5], [0.0, 0.0]]) == 0.0
    assert metrics.harmonic_mean([[0.9]]) is None
