"""How images become the input of a network: pure data, saved with the model. The views are made in `cosda.data`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal

from cosda.errors import CosdaError
from cosda.settings import typed

Profile = Literal["cosda", "shot"]
NEEDED = ("size", "mean", "std")  # a model file must say them
LARGEST = 8192  # pixels of a side


@dataclass(frozen=True)
class Preprocessing:
    """Size, normalisation and the profile of the views.

    A size of 0 stands for feature vectors, to which nothing is done.
    """

    size: int = 224  # pixels of each side
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)  # of pixels in 0..1; the default is ImageNet's
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    profile: Profile = "cosda"  # how boxes are cut; see data/views.py
    flip: bool = True  # off where left and right matter, as in digits

    def __post_init__(self) -> None:
        self._check_kinds()
        if self.profile not in ("cosda", "shot"):
            raise CosdaError(f"preprocessing profile '{self.profile}' is unknown; use 'cosda' or 'shot'.")
        if self.size and (len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0):
            raise CosdaError(f"preprocessing needs 3 means and 3 positive deviations, not {self.mean} and {self.std}.")

    def _check_kinds(self) -> None:
        """An error for a value of the wrong kind; the values of a model file may be anything."""
        numbers = (*self.mean, *self.std) if isinstance(self.mean, tuple) and isinstance(self.std, tuple) else (None,)
        good = {
            "size": isinstance(self.size, Integral) and not isinstance(self.size, bool) and 0 <= self.size <= LARGEST,
            "mean or std": all(isinstance(one, Real) and math.isfinite(one) for one in numbers),
            "profile": isinstance(self.profile, str),
            "flip": isinstance(self.flip, bool),
        }
        if wrong := [name for name, is_good in good.items() if not is_good]:
            raise CosdaError(
                f"preprocessing has a wrong {' and a wrong '.join(wrong)}. It has a size from 0 to {LARGEST}, 3 means, "
                "3 deviations, the name of a profile, and flip, which is true or false."
            )

    @property
    def of_images(self) -> bool:
        """Whether the input is images; otherwise it is feature vectors."""
        return self.size > 0

    def as_json(self) -> dict[str, Any]:
        """Plain values for model.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any], where: str = "a model file") -> Preprocessing:
        """The reverse of `as_json`; an unknown key is an error, and so is a missing one that a network depends on.

        Were a default taken, the network would see something else than it was trained on.
        """
        if isinstance(values, Mapping) and (missing := [key for key in NEEDED if key not in values]):
            known = {field.name for field in fields(cls)}
            if values.keys() <= known:
                raise CosdaError(
                    f"{where}: preprocessing lacks {', '.join(missing)}. Without them nobody knows what the network "
                    "was trained on: write in what it had in training, or save the model again."
                )
        found: Preprocessing = typed(cls, values, where, "preprocessing")
        return found


IMAGENET = Preprocessing()
FEATURE_VECTORS = Preprocessing(size=0, mean=(), std=(), flip=False)
