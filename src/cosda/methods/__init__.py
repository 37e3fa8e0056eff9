"""All methods by the name that the command line uses."""

from __future__ import annotations

from cosda.methods.aad import AaD
from cosda.methods.base import Method
from cosda.methods.bn import BN
from cosda.methods.composition import compose
from cosda.methods.cosda import CoSDA
from cosda.methods.cotta import CoTTA
from cosda.methods.dac import DaC
from cosda.methods.edgemix import EdgeMix
from cosda.methods.gsfda import GSFDA
from cosda.methods.nrc import NRC
from cosda.methods.shot import SHOT
from cosda.methods.shot_plus import SHOTPlus
from cosda.methods.source import Source
from cosda.registry import Registry

__all__ = ["METHODS", "Method"]

METHODS: Registry[type[Method]] = Registry(
    "method",
    {
        "source": Source,
        "bn": BN,
        "nrc": NRC,
        "aad": AaD,
        "cosda": CoSDA,
        "cosda+nrc": compose(NRC),
        "cosda+aad": compose(AaD),
        "shot": SHOT,
        "shot++": SHOTPlus,
        "cotta": CoTTA,
        "dac": DaC,
        "edgemix": EdgeMix,
        "gsfda": GSFDA,
    },
    group="cosda.methods",
    of=Method,
)
