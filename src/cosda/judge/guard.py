"""What is enough to stop a training, or not to begin it: plain facts that need no estimate.

The limits are far from what adaptations that work look like; what lies nearer is for the verdict to weigh. Reasons are
given in words.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cosda.data.loader import Loader
from cosda.judge.evidence import diversity

FEWEST = 20  # images, however few the classes are
COPIES = 0.5  # least share of the images that are not copies of others
COLLAPSED = 1 / 3  # of the classes that the incoming model predicts, by `diversity`
FLIPS = 0.6  # share of images that change their class in an epoch, from the third one on


def unfit_images(images: Loader, classes: int) -> str | None:
    """Why a model cannot be adapted to such images."""
    count = len(images)
    fewest = max(FEWEST, classes)
    if count < fewest:
        return (
            f"there are {count} images for {classes} classes; at least {fewest} are needed, better many times as many"
        )
    distinct = len({row.tobytes() for batch in images.sweep("test") for row in batch.images.cpu().numpy()})
    if distinct < COPIES * count:
        return f"only {distinct} of {count} images differ from each other; the rest are copies"
    return None


class Guard:
    """Watches what a model says of the same images from epoch to epoch."""

    def __init__(self, before: Tensor) -> None:
        """``before`` are the classes that the incoming model gives, of these images or of more of the domain."""
        self.before = before
        self.last: Tensor | None = None  # of the epoch before
        self.epochs = 0

    def stop(self, probabilities: Tensor) -> str | None:
        """Why the training should end after an epoch that led to these probabilities (N, C)."""
        classes, count = probabilities.argmax(dim=1).cpu(), probabilities.shape[1]
        flips = 0.0 if self.last is None else float((classes != self.last).double().mean())
        self.last, self.epochs = classes, self.epochs + 1
        was, now = diversity(self.before, count), diversity(classes, count)
        if now < COLLAPSED * was:
            share = float(torch.bincount(classes).max()) / len(classes)
            return f"the predictions fell together: {share:.0%} of the images now have one class"
        if self.epochs > 2 and flips > FLIPS:
            return f"{flips:.0%} of the images changed their class in one epoch: training does not settle"
        return None
