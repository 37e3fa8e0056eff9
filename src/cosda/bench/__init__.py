"""Many runs, on this machine or a cluster: each is a run folder like any other, so what is done is not done again.

The engines by the name that the command line uses. To add one is to write a file with a class and a line here.
Importing this loads no torch, because help texts are made from it.
"""

from __future__ import annotations

from cosda.bench.local import LocalEngine
from cosda.bench.ray import RayEngine
from cosda.bench.scheduler import Engine
from cosda.registry import Registry

__all__ = ["ENGINES", "Engine"]

ENGINES: Registry[type[Engine]] = Registry(
    "engine",
    {
        "local": LocalEngine,
        "ray": RayEngine,
    },
    group="cosda.engines",
    of=Engine,
)
