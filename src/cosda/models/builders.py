"""Who builds a network that cosda does not define: a library that is installed, or a function of the user's own.

A model folder remembers the builder's name and holds no code. A library builds unasked; a function of the user's own is
found and run only where somebody names it at that moment.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from cosda.errors import CosdaError
from cosda.models.architecture import WRAPPED, Architecture
from cosda.models.encoders.weights import first_line
from cosda.models.libraries import find_library

Builder = Callable[[], nn.Module]


def build_again(architecture: Architecture, build: Builder | str | None) -> tuple[nn.Module, str | None]:
    """A module of the shape of the one that was wrapped, whose weights mean nothing, and the name of its builder.

    Raises:
        CosdaError: only the user's code can build it, and nobody said that it may run; or it fails.
    """
    known = architecture.builder
    if known is not None and (library := find_library(known)) is not None:
        return library.build(architecture.classes, architecture.config), known
    if build is not None:
        return built(build), build if isinstance(build, str) else known
    if known is not None:
        raise CosdaError(
            f"this model is of your own code, which is never run unasked. It was made by {known}; let that build it "
            f"again with --build {known} (in Python build='{known}'), or set COSDA_BUILD={known}."
        )
    raise CosdaError(
        "this network is a model of your own that cosda wrapped, and only your code can build it: "
        "cosda.load(path, build=function), where the function returns such a model, trained or not; on the command "
        "line --build MODULE:FUNCTION."
    )


def function_for(architecture: Architecture) -> str | None:
    """What `--build` must name for a network: MODULE:FUNCTION where that is not known, None where nothing is needed."""
    known = architecture.builder
    if architecture.encoder != WRAPPED or (known is not None and find_library(known) is not None):
        return None
    return known or "MODULE:FUNCTION"


def built(build: Builder | str) -> nn.Module:
    """What a function makes; or the one that is called ``module:function``, which is looked for in this folder too."""
    made = _called(build) if isinstance(build, str) else build()
    if not isinstance(made, nn.Module):
        raise CosdaError(f"build= must return a torch.nn.Module, as wrap took it; it returned a {type(made).__name__}.")
    return made


def _called(name: str) -> Any:
    module, _, function = name.partition(":")
    if not (module and function):
        raise CosdaError(
            f"--build {name}: write MODULE:FUNCTION, such as mymodels:make for the function 'make' of mymodels.py."
        )
    with _importable(os.getcwd()):
        try:
            found: Any = importlib.import_module(module)
        except Exception as error:  # whatever the user's module raises while it is read
            raise CosdaError(
                f"--build {name}: the module '{module}' cannot be imported: {type(error).__name__}: "
                f"{first_line(error)}. It must lie in the current folder, or be installed."
            ) from error
        try:
            for part in function.split("."):
                found = getattr(found, part)
        except AttributeError:
            raise CosdaError(f"--build {name}: the module '{module}' has no function '{function}'.") from None
        try:
            return found()
        except Exception as error:
            raise CosdaError(
                f"--build {name}: the function failed: {type(error).__name__}: {first_line(error)}. It is called "
                "without arguments."
            ) from error


@contextmanager
def _importable(folder: str) -> Iterator[None]:
    """Within the block modules of a folder can be imported, as with ``python -m``."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
