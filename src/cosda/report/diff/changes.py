"""Which images change class between two models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cosda.records.images import ComparedImage
from cosda.shown import Facts, Shown

MOST_PAIRS = 10  # of classes are shown


@dataclass(frozen=True)
class Diff(Shown):
    """What changes when one model takes the place of another."""

    a: str  # the folder of the first model
    b: str
    images: int  # that could be read
    changed: tuple[ComparedImage, ...]  # first those of which both models are most confident
    skipped: Mapping[str, str] = field(default_factory=dict)  # images that cannot be read, and why
    pictures: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)  # small JPEG files, by image

    @property
    def share(self) -> float:
        """Of the images, those whose class changes."""
        return len(self.changed) / self.images if self.images else 0.0

    @property
    def pairs(self) -> dict[tuple[str, str], int]:
        """How many images change from which class to which, the most frequent first."""
        return dict(Counter((one.before, one.after) for one in self.changed).most_common())

    def _facts(self) -> Facts:
        pairs = [(before, after, str(images)) for (before, after), images in self.pairs.items()]
        more = [f"and {len(pairs) - MOST_PAIRS} more pairs of classes"] if len(pairs) > MOST_PAIRS else []
        title = f"{len(self.changed)} of {self.images} images change class, {self.share:.1%}"
        return Facts(title, pairs[:MOST_PAIRS], ("from", "to", "images"), more)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "a": self.a,
            "b": self.b,
            "images": self.images,
            "share": self.share,
            "pairs": [{"before": a, "after": b, "images": images} for (a, b), images in self.pairs.items()],
            "changed": [asdict(one) for one in self.changed],
            "skipped": dict(self.skipped),
        }
