"""A model that stays ready between calls, for programs that predict again and again."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cosda.data.decode import Decoder, Pixels, Unreadable, decode, fetch
from cosda.data.domain import Domain, Undecoded, everything
from cosda.data.inputs import load_domain
from cosda.data.loader import Loader
from cosda.errors import CosdaError
from cosda.models.artifact import Model, load
from cosda.models.network import to_device
from cosda.run.answers import answering, answers
from cosda.run.evaluate import EVALUATION_BATCH, probabilities
from cosda.run.machine import Machine
from cosda.run.predictions import Prediction
from cosda.run.prepare import MARGIN, check_input


class Predictor:
    """Loads a model once and predicts as often as it is asked, without a cache on disk.

    It gives what `cosda.predict` gives, to the bit where the same images are computed together: the order of additions
    inside a network depends on how many images there are, so an image alone may differ in the last digits from the same
    image among others. It may be called from several threads.

    Args:
        model: a model, of which it keeps a copy, or the folder of one.
        device: auto, cpu, cuda, cuda:1, …
        domain: the domain that the images are from. A model with a mask for each domain must be told; a domain bank
            then answers by that domain's expert alone, and finds the domain of each image by itself where it is not.
        batch_size: how many images are computed together at most.
        experts_in_memory: how many experts of a domain bank are kept ready; the others are made anew when needed.

    Example:
        >>> predictor = cosda.Predictor("adapted-model")
        >>> predictor.predict(["photo.jpg", "other.png"])[0].class_name
        'cat'
    """

    def __init__(
        self,
        model: Model | str | Path,
        *,
        device: str | torch.device = "auto",
        domain: str | None = None,
        batch_size: int = EVALUATION_BATCH,
        experts_in_memory: int | None = None,
    ) -> None:
        if batch_size < 1:
            raise CosdaError(f"batch_size is {batch_size}; at least one image must be computed at a time.")
        self.model = copy.deepcopy(model) if isinstance(model, Model) else load(model)
        self.batch_size = batch_size
        with Machine(device=str(device)).open() as opened:
            self.device = opened
            self._network = to_device(answering(self.model.network, domain, experts_in_memory), opened).eval()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the probabilities."""
        return self.model.classes

    def predict(self, images: Any, explain: bool = False) -> list[Prediction]:
        """The class of each image with its probability, in the order in which they were given.

        Args:
            images: as in `probabilities`.
            explain: also say which domain a domain bank takes each image for.

        Raises:
            CosdaError: as in `probabilities`; or there is nothing to explain.
        """
        domain = self._read(images)
        rows = zip(domain.names, *answers(self._network, self._loader(domain), explain), strict=True)
        return [Prediction(name, self.classes, row, route=route) for name, row, route in rows]

    def probabilities(self, images: Any) -> NDArray[np.float32]:
        """The probability (N, C) of each class for each image, in the order in which they were given.

        Args:
            images: a path, a PIL image, an array or tensor (uint8 (H, W, 3), (3, H, W) or grey (H, W), or floats from 0
                to 1 in these shapes), a list of any of these, a batch of them as one array, or anything else that
                `cosda.load_domain` takes. Feature vectors, (d,) or (N, d), for a model of feature vectors.

        Raises:
            CosdaError: something is no image, or cannot be read.
        """
        return probabilities(self._network, self._loader(self._read(images)))

    def _read(self, images: Any) -> Domain:
        domain = load_domain([images] if self._is_one(images) else images, labels=False)
        check_input(self.model, domain)
        return domain

    def _is_one(self, images: Any) -> bool:
        """Whether an array or tensor is one image, or one feature vector, and not a batch of them."""
        shape = tuple(getattr(images, "shape", ()))
        if not self.model.preprocessing.of_images:
            return len(shape) == 1
        if len(shape) == 2:  # grey; floats could be feature vectors
            return str(images.dtype).endswith("uint8")
        ends = (shape[-1:], shape[:1]) if isinstance(images, torch.Tensor) else (shape[-1:],)
        return len(shape) == 3 and any(end in ((1,), (3,)) for end in ends)

    def _loader(self, domain: Domain) -> Loader:
        preprocessing, items = self.model.preprocessing, domain.items
        if isinstance(items, Undecoded):
            items = _Images(items, round(preprocessing.size * MARGIN))
        # One pass over all of them, because what a pass does may depend on how many images it has seen (`bn_folding`).
        return Loader(items, everything(len(domain)), preprocessing, self.device, self.batch_size)


class _Images(Decoder):
    """Images that are decoded once, and whose faults are the caller's to know."""

    def _read(self, position: int) -> Pixels:
        try:
            return decode(fetch(self.images, position), self.size)
        except Unreadable as error:
            raise CosdaError(f"{self.images.where(position)} cannot be read: {error}.") from None
