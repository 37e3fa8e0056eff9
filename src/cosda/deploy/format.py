"""What a format of a deployed model is."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosda.deploy.graph import Graph

Array = NDArray[Any]
Run = Callable[[Array], dict[str, Array]]  # the one input to the outputs by name
Description = dict[str, Any]  # plain values, for whoever opens the file
DESCRIPTION = "cosda.json"  # its name within files that hold others


@dataclass(frozen=True)
class Format:
    """An entry of the registry of formats."""

    title: str  # what it is for, in a few words
    ending: str  # of its files
    check: Callable[[], None]  # an error where a package is missing
    write: Callable[[Graph, Description], bytes]  # the whole file
    open: Callable[[bytes], Run]  # as whoever deploys it would


def as_text(description: Description) -> str:
    """What a file says of itself."""
    return json.dumps(description, ensure_ascii=False)


def by_name(names: list[str], values: Any) -> dict[str, Array]:
    """Outputs as arrays."""
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}


@contextmanager
def silence() -> Iterator[None]:
    """Within the block nothing is warned of or logged.

    What an exporter says is for those who write exporters. Whether its file is right is seen by running it.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
