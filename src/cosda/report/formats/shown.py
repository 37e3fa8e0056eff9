"""Images on a page: what two models say of each, with a small picture."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import PurePath

from cosda.records.images import ComparedImage


@dataclass(frozen=True)
class Shown:
    """One image on the page."""

    image: ComparedImage
    picture: str | None  # as a data address

    @property
    def name(self) -> str:
        """The file's name without its folders."""
        return PurePath(self.image.image).name or self.image.image


def data_address(content: bytes) -> str:
    """A small picture as a part of the page."""
    kind = "png" if content.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
