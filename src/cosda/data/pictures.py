"""Small pictures of images, for people to look at."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from cosda.data.decode import Unreadable, decode, fetch
from cosda.data.domain import Domain, Undecoded

SIDE = 160  # pixels


def picture(domain: Domain, position: int) -> bytes | None:
    """A small JPEG file of an image, square as networks see it; None of feature vectors and what cannot be read."""
    if domain.kind == "features":
        return None
    if isinstance(domain.items, Undecoded):
        try:
            image = Image.fromarray(decode(fetch(domain.items, position), SIDE))
        except Unreadable:
            return None
    else:
        image = Image.fromarray(np.asarray(domain.items[np.array([position])])[0])
        image.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=80)
    return file.getvalue()
