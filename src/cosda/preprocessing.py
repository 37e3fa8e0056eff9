"""How images become the input of a network: pure data, saved with the model. The views are made in `cosda.data`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from cosda.errors import CosdaError, nearest

Profile = Literal["cosda", "shot"]


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
        if self.profile not in ("cosda", "shot"):
            raise CosdaError(f"preprocessing profile '{self.profile}' is unknown; use 'cosda' or 'shot'.")
        if self.size and (len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0):
            raise CosdaError(f"preprocessing needs 3 means and 3 positive deviations, not {self.mean} and {self.std}.")

    @property
    def of_images(self) -> bool:
        """Whether the input is images; otherwise it is feature vectors."""
        return self.size > 0

    def check_kind(self, kind: str) -> None:
        """An error for data of the other kind: ``images`` or ``features``."""
        if (kind == "images") != self.of_images:
            raise CosdaError(f"the model takes {'images' if self.of_images else 'feature vectors'}, but got {kind}.")

    def as_json(self) -> dict[str, Any]:
        """Plain values for model.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Preprocessing:
        """The reverse of `as_json`; an unknown key is an error, as the network would see something else."""
        known = {field.name for field in fields(cls)}
        for key in values:
            if key not in known:
                raise CosdaError(f"preprocessing has no setting '{key}'.{nearest(key, known)}")
        as_tuples: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**as_tuples)


IMAGENET = Preprocessing()
FEATURE_VECTORS = Preprocessing(size=0, mean=(), std=(), flip=False)
