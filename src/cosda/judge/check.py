"""What a few labelled images say of a model before and after: exact intervals, and an exact paired test."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from cosda.records.verdict import Checked, Counted

Correct = NDArray[np.bool_]
LEVEL = 0.95  # of the intervals


def compare(before: Correct, after: Correct) -> Checked:
    """Correct answers (N,) of two models on the same images."""
    better, worse = int((after & ~before).sum()), int((before & ~after).sum())
    # McNemar's test: of the images on which they differ, each side has half where there is no difference.
    p_value = float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
    return Checked(_counted(before), _counted(after), better, worse, p_value)


def _counted(correct: Correct) -> Counted:
    """With the interval of Clopper and Pearson."""
    count, images = int(correct.sum()), len(correct)
    found = binomtest(count, images).proportion_ci(LEVEL, method="exact")
    return Counted(count, images, float(found.low), float(found.high))
