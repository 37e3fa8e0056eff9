"""All methods by the name that the command line uses."""

from __future__ import annotations

from cosda.errors import CosdaError, nearest
from cosda.methods.base import Method
from cosda.methods.bn import BN
from cosda.methods.cosda import CoSDA
from cosda.methods.source import Source

__all__ = ["METHODS", "Method", "method_class"]

METHODS: dict[str, type[Method]] = {
    "source": Source,
    "bn": BN,
    "cosda": CoSDA,
}


def method_class(name: str) -> type[Method]:
    """The class behind a name."""
    if name not in METHODS:
        raise CosdaError(f"there is no method '{name}'.{nearest(name, METHODS)} Known: {', '.join(METHODS)}.")
    return METHODS[name]
