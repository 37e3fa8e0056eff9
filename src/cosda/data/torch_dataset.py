"""Images that a program holds: a torch ``Dataset``, a list of images, or a tensor.

A ``Dataset`` is anything with positions and a length whose items are images or pairs (image, label). It is read one
image at a time, for its key and when it is packed into the cache, and is never held in memory as a whole; feature
vectors are. It must have no random transforms: an image is stored once, and its random views are made later.

Images are PIL images, or arrays and tensors: uint8 (H, W, 3), (3, H, W) or grey (H, W), or floats from 0 to 1 in these
shapes. Torch is not imported here: tensors are recognised by what they can do.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cosda.data.arrays import named
from cosda.data.domain import Domain, Images, Items, everything
from cosda.data.readers import Reading, numbers
from cosda.errors import CosdaError

Array = NDArray[Any]


class Indexable(Protocol):
    """Anything with positions: a list, an array, a tensor, a ``Dataset``."""

    def __getitem__(self, position: int, /) -> Any: ...


def read_dataset(dataset: Indexable, name: str, labels: bool = True) -> Reading:
    """The domain of a ``Dataset`` or of a list of images, in its order.

    With ``labels``, all items are read once for them, where they are pairs. If the dataset has ``classes``, as
    torchvision's have, these are the names of numbered labels.

    Raises:
        CosdaError: the items are neither images nor feature vectors, with or without labels.
    """
    count = len(dataset)  # type: ignore[arg-type]
    first = _item(dataset, 0)
    items: Images | Items
    if _is_vector(_image_part(first)):
        items = np.stack([_vector(dataset, position) for position in range(count)])
    else:
        open_image = partial(_image, dataset)
        open_image(0)  # what can be no image is refused now, and not when it is packed
        items = Images(open_image, numbers(count))
    every = everything(count)
    reading = Reading(Domain(name, items, None, every, every))
    if not labels or not _is_pair(first):
        return reading
    found = np.array([_label(dataset, position) for position in range(count)])
    classes = getattr(dataset, "classes", None)
    reading = reading.with_labels(found, name)
    return named(reading, tuple(map(str, classes)), name) if classes and reading.numbered else reading


def is_tensor(value: object) -> bool:
    """Whether a value is a torch tensor."""
    return hasattr(value, "detach") and hasattr(value, "cpu")


def as_images(value: Any) -> Array:
    """An array or tensor of images as uint8 (N, H, W, 3), or (N, H, W) if grey; of features as it is."""
    array = _as_array(value)
    if array.ndim < 3:
        return array
    if array.ndim == 3 and array.shape[2] in (1, 3):
        raise CosdaError(f"the array has the shape of one image, {array.shape}; give it in a list.")
    return _as_bytes(_channels_last(array, 1, is_tensor(value)), "the array")


def _item(dataset: Indexable, position: int) -> Any:
    try:
        return dataset[position]
    except CosdaError:
        raise
    except Exception as error:  # the user's own code may raise anything
        raise CosdaError(f"item {position} cannot be read: {type(error).__name__}: {error}.") from error


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple | list) and len(item) > 1


def _image_part(item: Any) -> Any:
    """An item without its label."""
    return item[0] if isinstance(item, tuple | list) and item else item


def _label(dataset: Indexable, position: int) -> Any:
    item = _item(dataset, position)
    if not _is_pair(item):
        raise CosdaError(f"item {position} has no label, and item 0 has one; give all of them or none.")
    return item[1].item() if hasattr(item[1], "item") else item[1]  # a number of numpy or torch


def _is_vector(value: Any) -> bool:
    return getattr(value, "ndim", 0) == 1 and not isinstance(value, Image.Image)


def _vector(dataset: Indexable, position: int) -> NDArray[np.float32]:
    vector = _as_array(_image_part(_item(dataset, position)))
    if vector.ndim != 1 or not np.issubdtype(vector.dtype, np.floating) or not np.isfinite(vector).all():
        raise CosdaError(
            f"item {position} is no feature vector: expected (d,) finite floats, as item 0 seems to be, "
            f"found {vector.shape} of {vector.dtype}."
        )
    return vector.astype(np.float32)


def _image(dataset: Indexable, position: int) -> Image.Image:
    value, where = _image_part(dataset[position]), f"item {position}"
    if isinstance(value, Image.Image):
        return value
    array = _as_array(value) if is_tensor(value) else value
    if not isinstance(array, np.ndarray) or array.ndim not in (2, 3):
        found = f"{array.shape} of {array.dtype}" if isinstance(array, np.ndarray) else type(value).__name__
        raise CosdaError(
            f"{where} is no image: expected a PIL image, or an array or tensor (H, W, 3), (3, H, W) or (H, W), "
            f"found {found}."
        )
    array = _as_bytes(_channels_last(array, 0, is_tensor(value)), where)
    if array.shape[2:] not in ((), (1,), (3,)):
        raise CosdaError(f"{where} has {array.shape[2]} channels; an image has 3, or 1 if it is grey.")
    return Image.fromarray(array[..., 0] if array.shape[2:] == (1,) else array)


def _as_array(value: Any) -> Array:
    if not is_tensor(value):
        return np.asarray(value)
    tensor = value.detach().cpu()
    return np.asarray(tensor.float() if tensor.is_floating_point() else tensor)  # numpy has no bfloat16


def _channels_last(array: Array, axis: int, first: bool) -> Array:
    """Images with their channels, which may lie at ``axis``, at the end; where both could be, ``first`` decides."""
    if array.ndim < axis + 3:  # grey
        return array
    at_axis, at_end = array.shape[axis] in (1, 3), array.shape[-1] in (1, 3)
    return np.moveaxis(array, axis, -1) if at_axis and (first or not at_end) else array


def _as_bytes(array: Array, where: str) -> Array:
    """Images as uint8, also those with floats from 0 to 1."""
    if np.issubdtype(array.dtype, np.floating):
        if not (array.min() >= 0 and array.max() <= 1):  # NaN is neither
            raise CosdaError(
                f"{where} has values from {array.min():.3g} to {array.max():.3g}. Give floats from 0 to 1, without "
                f"normalisation, or uint8; the network's own normalisation is applied later."
            )
        array = np.rint(array * 255).astype(np.uint8)
    if array.dtype != np.uint8:
        raise CosdaError(f"{where} is of {array.dtype}. Images are uint8, or floats from 0 to 1.")
    return array
